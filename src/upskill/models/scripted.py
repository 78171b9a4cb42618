"""`scripted:FILE`: a model that answers from a file, for tests and demonstrations.

The file is YAML or JSON: a list of rules, or a mapping with `rules:`. The first rule that matches answers; if none
does, the call is an error.

    - when: "9.0"              # this text is in the last user message (a regular expression with `match:`)
      system: "cuda"           # and this text is in the system prompt
      seed: 1                  # and the request has this seed
      answer: "Use 9.0."       # or `answers:`, a list to choose from by seed; or `error:`, as from a provider
      stop: length             # how it ended: also refusal, context (the prompt did not fit) or repetition
      usage: {input: 10, output: 3}

An agent that acts calls the model several times. `turns:` has a reply for each, in order: a text, or text and tool
calls. A rule can also match the `turn:`, from 0, and the last result of a tool (`result:`).

    - when: "a file"
      turns:
        - {text: "I write it.", calls: [{name: write_file, arguments: {path: a.txt, content: hello}}]}
        - {calls: [{name: bash, arguments: {command: "cat a.txt"}}, {name: list_files}]}
        - "It is written."
"""

from __future__ import annotations

import asyncio
import re
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from upskill.errors import ModelError, UsageError
from upskill.inputs import read_input_text
from upskill.models import Address, ModelContext, Reply, Request, ToolCall, Unanswered
from upskill.plain import as_list, as_mapping, read_yaml, yaml_words
from upskill.traces import Usage


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _RuleUsage(_Strict):
    input: int | None = None
    output: int | None = None
    cost: float = 0.0


class _Call(_Strict):
    name: str
    arguments: dict[str, object] = {}


class _Turn(_Strict):
    text: str = ""
    calls: list[_Call] = Field(default_factory=list[_Call])


class Rule(_Strict):
    when: str = ""
    match: str = ""
    system: str = ""
    not_system: str = ""
    seed: int | None = None
    result: str = ""
    turn: int | None = None  # how many assistant turns came before
    answer: str | None = None
    answers: list[str] = Field(default_factory=list)
    calls: list[_Call] = Field(default_factory=list[_Call])
    turns: list[str | _Turn] = Field(default_factory=list[str | _Turn])
    stop: Literal["", "length", "repetition", "context", "refusal"] = ""
    error: str = ""
    seconds: float = 0.0
    usage: _RuleUsage = _RuleUsage()

    @field_validator("match")
    @classmethod
    def _is_regex(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _has_content(self) -> Rule:
        if self.answer is None and not (
            self.answers or self.calls or self.turns or self.error or self.stop
        ):
            raise ValueError("needs `answer`, `answers`, `calls`, `turns`, `stop` or `error`")
        if self.turns and (self.answer is not None or self.answers or self.calls):
            raise ValueError("`turns` cannot be combined with `answer`, `answers` or `calls`")
        return self

    def matches(self, request: Request) -> bool:
        last = {message.role: message.text for message in request.messages}
        user, result = last.get("user", ""), last.get("tool", "")
        system = "\n".join(message.text for message in request.messages if message.role == "system")
        return (
            self.when in user
            and (not self.match or re.search(self.match, user, re.DOTALL) is not None)
            and self.system in system
            and (not self.not_system or self.not_system not in system)
            and self.seed in (None, request.seed)
            and self.result in result
            and self.turn in (None, _turns_before(request))
        )

    def next_turn(self, request: Request) -> _Turn:
        if not self.turns:
            texts = self.answers or [self.answer or ""]
            return _Turn(text=texts[(request.seed or 0) % len(texts)], calls=self.calls)
        before = _turns_before(request)
        if before >= len(self.turns):
            raise ModelError(
                f"the script has {len(self.turns)} turns, but turn {before + 1} was requested"
            )
        turn = self.turns[before]
        return turn if isinstance(turn, _Turn) else _Turn(text=turn)


def _turns_before(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


class ScriptedModel:
    def __init__(self, name: str, rules: list[Rule]) -> None:
        self.name = name
        self.rules = rules

    async def reply(self, request: Request) -> Reply:
        rule = next((rule for rule in self.rules if rule.matches(request)), None)
        if rule is None:
            raise ModelError(f"{self.name}: no rule in the script matches this request")
        if rule.seconds:
            await asyncio.sleep(rule.seconds)
        if rule.error:
            raise ModelError(rule.error)
        turn = rule.next_turn(request)
        calls = tuple(
            ToolCall(f"call_{number}", call.name, call.arguments)
            for number, call in enumerate(turn.calls, start=1)
        )
        input_tokens, output_tokens = rule.usage.input, rule.usage.output
        if input_tokens is None:
            input_tokens = sum(len(message.text.split()) for message in request.messages)
        if output_tokens is None:
            output_tokens = len(turn.text.split())
        usage = Usage(input_tokens, output_tokens, cost_usd=rule.usage.cost)
        if rule.stop in ("context", "refusal"):
            unanswered = Unanswered(f"from the script: {rule.stop}", stop=rule.stop, text=turn.text)
            unanswered.usage = usage
            raise unanswered
        return Reply(
            turn.text, usage, rule.stop or ("tools" if calls else "end"), calls, model=self.name
        )

    async def close(self) -> None:
        pass


async def open_model(address: Address, context: ModelContext) -> ScriptedModel:
    return ScriptedModel(address.name, _read_rules(address))


def _read_rules(address: Address) -> list[Rule]:
    try:
        document = read_yaml(
            read_input_text(address.model, hint="Add the path to a script: scripted:PATH.")
        )
    except UsageError as error:  # of its file
        raise UsageError(f"scripted:{error.message}", error.hint) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{address.name}: {yaml_words(error)}") from error
    mapping = as_mapping(document)
    rules = as_list(mapping.get("rules") if mapping is not None else document)
    if not rules:
        raise UsageError(f"{address.name}: must be a list of rules", "For example: - answer: hello")
    return [
        _rule(rule, f"{address.name}: rule {number}") for number, rule in enumerate(rules, start=1)
    ]


def _rule(document: object, where: str) -> Rule:
    try:
        return Rule.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        parts = (
            where,
            ".".join(map(str, first["loc"])),
            first["msg"].removeprefix("Value error, "),
        )
        raise UsageError(": ".join(filter(None, parts))) from error
