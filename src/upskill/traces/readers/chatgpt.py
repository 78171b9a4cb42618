"""ChatGPT: the JSON of a data export, `conversations.json`, or of one conversation.

`conversations.json` has many: `conversations.json/ID` or `conversations.json/TITLE` is one, the file alone the latest.
"""

from __future__ import annotations

from collections import Counter

from upskill.plain import counted
from upskill.traces import Status
from upskill.traces.formats import Format, Sample, TraceBuilder, split_path
from upskill.traces.values import Row, as_row, iso_time

STATUSES: dict[str, Status] = {
    "success": "ok",
    "failed_with_in_kernel_exception": "error",
    "timeout": "error",
}
PLAIN = ("text", "result", "content", "output_str")  # fields with the whole text
THOUGHTS = ("thoughts", "reasoning_recap")
THINKER = "a8km123"  # what models that think say meanwhile is a message of this tool
HIDDEN = (
    "user_editable_context",
    "model_editable_context",
)  # what the person told about themselves, long before


def detects(sample: Sample) -> bool:
    return any(_nodes(row) for row in map(as_row, sample.values[:50]))


def _nodes(conversation: Row) -> dict[str, Row]:
    nodes = {name: as_row(node) for name, node in conversation.child("mapping").items()}
    is_tree = any(
        "message" in node and ("parent" in node or "children" in node) for node in nodes.values()
    )
    return nodes if is_tree else {}


def read(builder: TraceBuilder) -> None:
    rows = [row for row in map(as_row, builder.read_values()) if _nodes(row)]
    rows.sort(key=lambda row: row.number("update_time") or row.number("create_time") or 0)
    titles = Counter(row.text("title") for row in rows)
    labels = {_label(row, titles) or str(number): row for number, row in enumerate(rows, start=1)}
    wanted = [
        row
        for row in rows
        if row.text("conversation_id", "id") == split_path(builder.path)[1] != ""
    ]
    conversation = (
        wanted[0]
        if wanted
        else labels[builder.choose_session([*labels], "conversations", latest=True)]
    )
    builder.session = conversation.text("conversation_id", "id")
    builder.model = conversation.text("default_model_slug")
    builder.started = _time(conversation)
    last_call = ""
    for message in builder.watch(_branch(builder, conversation), _kind):
        builder.at = _time(message)
        last_call = _read_message(builder, message, last_call)


def _label(row: Row, titles: Counter[str]) -> str:
    title = row.text("title")
    return (
        title
        if title and titles[title] == 1 and "/" not in title
        else row.text("conversation_id", "id")
    )


def _time(row: Row) -> str:
    seconds = row.number("create_time")
    return iso_time(seconds and seconds * 1000)


def _branch(builder: TraceBuilder, conversation: Row) -> list[Row]:
    """The messages on the way from the first to the current one. Answers that were asked for again are left out."""
    nodes, branch = _nodes(conversation), dict[str, Row]()
    at = conversation.text("current_node") or next(reversed(nodes))
    while at in nodes and at not in branch:
        branch[at] = nodes[at]
        at = nodes[at].text("parent")
    if others := sum(
        bool(node.child("message")) for name, node in nodes.items() if name not in branch
    ):
        builder.warn(f"skipped {counted(others, 'message')} from turns that were undone")
    return [message for node in reversed(branch.values()) if (message := node.child("message"))]


def _kind(message: Row) -> str:
    return f"{message.child('author').text('role')}/{message.child('content').text('content_type')}"


def _read_message(builder: TraceBuilder, message: Row, last_call: str) -> str:
    """Add a message; the id of the call that the next result belongs to."""
    author, content, metadata = (
        message.child("author"),
        message.child("content"),
        message.child("metadata"),
    )
    role, kind, text = author.text("role"), content.text("content_type"), _text(content)
    recipient = message.text("recipient") or "all"
    builder.model = metadata.text("model_slug") or builder.model
    thinks = kind in THOUGHTS or author.text("name") == THINKER
    if found := _found(metadata):
        builder.extend_call(last_call, output=found)
    if role == "tool" and not thinks:
        status = STATUSES.get(metadata.child("aggregate_result").text("status"), "unknown")
        builder.add_result(
            last_call, text, "error" if kind == "system_error" else status, tool=author.text("name")
        )
        builder.leave_out(_kind(message), not {"parts", *PLAIN} & set(content))
    if role == "assistant" and recipient != "all":
        call = message.text("id") or recipient
        builder.add_call(call, recipient, text)
        return call
    if role == "assistant" or thinks:
        builder.stop = metadata.child("finish_details").text("type") or builder.stop
        builder.add_text("thinking" if thinks else "assistant", text)
    elif role in ("user", "system"):
        hidden = kind in HIDDEN or metadata.get("is_visually_hidden_from_conversation") is True
        builder.add_text("system" if hidden or role == "system" else "user", text)
    if role in ("user", "assistant", "system") and not text and kind in ("text", "code", *THOUGHTS):
        builder.use()  # it is empty
    return last_call


def _found(metadata: Row) -> str:
    """What a search found, which is told with the answer."""
    entries = [
        entry
        for group in metadata.children("search_result_groups")
        for entry in group.children("entries")
    ]
    return "\n".join(" ".join(map(entry.text, ("title", "url", "snippet"))) for entry in entries)


def _text(content: Row) -> str:
    thoughts = [thought.text("content", "summary") for thought in content.children("thoughts")]
    parts = [
        part if isinstance(part, str) else _part(as_row(part)) for part in content.array("parts")
    ]
    about = [
        content.text(name) for name in ("user_profile", "user_instructions", "model_set_context")
    ]
    return "\n".join(filter(None, [*thoughts, *parts, *about])) or content.text(*PLAIN)


def _part(part: Row) -> str:
    kind = part.text("content_type").partition("_")[0]
    return part.text("text") or (f"[{kind}]" if kind else "")


FORMAT = Format("chatgpt", "ChatGPT export", read, detects)
