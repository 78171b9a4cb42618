"""The example about CUDA kernels: its suite, its known-good kernels, and how its skill was made."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import REPOSITORY, Upskill, read_check
from upskill import Skill, Suite
from upskill.checks import Evidence
from upskill.checks.kernel.task import TaskHeader, read_signature, read_task
from upskill.sandboxes import SANDBOXES, Setup
from upskill.suites.near_duplicates import near_duplicates
from upskill.suites.quality import probe_suite
from upskill.traces import Step, Trace
from upskill.traces.formats import read_trace

EXAMPLE = REPOSITORY / "examples" / "h100-kernels"
EVALS = EXAMPLE / "evals"
NAMES = sorted(path.stem for path in (EVALS / "kernels").glob("*.cu"))
LAUNCHER = re.compile(r'extern "C" void launch\(([^)]*),\s+cudaStream_t stream\)')


def task(name: str) -> TaskHeader:
    return read_task((EVALS / "tasks" / f"{name}.py").read_text(encoding="utf-8"))


def kernel(name: str) -> str:
    return (EVALS / "kernels" / f"{name}.cu").read_text(encoding="utf-8")


def suites(*, unseen: bool = False) -> tuple[Suite, Suite]:
    """With a GPU, and without: of the example, or of the tasks that its skill was not made for."""
    names = (
        ("unseen.yaml", "unseen-without-gpu.yaml") if unseen else ("suite.yaml", "without-gpu.yaml")
    )
    return Suite.load(EVALS / names[0]), Suite.load(EVALS / names[1])


def test_every_case_has_a_task_a_kernel_and_asks_for_their_launcher() -> None:
    suite, _ = suites()
    assert len(suite.cases) >= 16
    assert sorted(case.id.replace("-", "_") for case in suite.cases) == NAMES
    for case in suite.cases:
        name = case.id.replace("-", "_")
        asked, written = LAUNCHER.search(case.prompt), LAUNCHER.search(kernel(name))
        assert asked, name
        assert written, name
        assert asked[1] == " ".join(task(name).signature.split())
        assert [one.kind for one in read_signature(written[1])] == [
            one.kind for one in task(name).arguments
        ]
        assert f"tasks/{name}.py" in str([named.config for named in case.checks])


def test_every_task_is_checked_at_one_element_at_odd_sizes_and_at_a_large_one() -> None:
    for name in NAMES:
        header = task(name)
        assert header.timed
        assert any(set(shape) <= {1, 2} for shape in header.shapes), name
        assert any(size % 2 and size > 2 for shape in header.shapes for size in shape), name
        assert header.tolerance, name


def test_unseen_tasks_ask_for_their_launcher_and_are_none_of_the_others() -> None:
    suite, _ = suites(unseen=True)
    assert len(suite.cases) == 8
    for case in suite.cases:
        name = case.id.replace("-", "_")
        header = read_task((EVALS / "unseen" / f"{name}.py").read_text(encoding="utf-8"))
        asked = LAUNCHER.search(case.prompt)
        assert asked, name
        assert asked[1] == " ".join(header.signature.split())
        assert header.timed
        assert f"unseen/{name}.py" in str([named.config for named in case.checks])
    assert near_duplicates([*suite.cases, *suites()[0].cases]) == []


@pytest.mark.parametrize("unseen", [False, True])
def test_the_suite_without_a_gpu_asks_the_same(unseen: bool) -> None:
    full, without = suites(unseen=unseen)
    assert [(case.id, case.prompt) for case in full.cases] == [
        (case.id, case.prompt) for case in without.cases
    ]
    kinds = {named.name for case in without.cases for named in case.checks}
    assert kinds == {"kernel_compiles", "kernel_resources", "not_contains"}


def test_no_answer_passes_that_knows_nothing_not_even_the_skill_recited() -> None:
    cases = [case for unseen in (False, True) for case in suites(unseen=unseen)[1].cases]
    assert near_duplicates(cases) == []
    few = replace(suites()[1], cases=tuple(cases[::4]))  # compiling takes its time
    assert asyncio.run(probe_suite(few, Skill.load(EXAMPLE))) == []


def forms() -> dict[str, str]:
    """One kernel of each form, and the skill's own templates; all kernels are built where they are run."""
    templates = re.findall(r"```cuda\n(.*?)```", Skill.load(EXAMPLE).body, re.DOTALL)
    assert len(templates) == 2
    return {name: kernel(name) for name in ("softmax",)} | {
        f"template {number}": code for number, code in enumerate(templates, start=1)
    }


@pytest.mark.parametrize("form", forms())
async def test_a_known_good_kernel_and_a_template_compile_and_spill_nothing(form: str) -> None:
    async with await SANDBOXES.load("bubblewrap")().open(Setup()) as sandbox:
        evidence = Evidence(
            Trace((Step("assistant", f"```cuda\n{forms()[form]}```"),)), sandbox=sandbox
        )
        finding = await read_check(
            {"kernel_resources": {"spills": 0, "shared": 49152}}, form
        ).check.run(evidence)
    assert finding.passed, finding.reason


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="there is no NVIDIA GPU")
@pytest.mark.parametrize("name", NAMES)
async def test_a_known_good_kernel_passes_every_tier_of_its_case(name: str) -> None:
    (case,) = (case for case in suites()[0].cases if case.id.replace("-", "_") == name)
    async with await SANDBOXES.load("bubblewrap")().open(Setup()) as sandbox:
        evidence = Evidence(
            Trace((Step("assistant", f"```cuda\n{kernel(name)}```"),)), sandbox=sandbox
        )
        for named in case.checks:
            finding = await named.check.run(evidence)
            assert finding.passed, finding.reason


LOW = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
struct low {  // a number that is rounded after each operation
  float v;
  low() = default;
  __host__ __device__ low(float f) : v(TYPE(f)) {}
  __host__ __device__ operator float() const { return v; }
  __host__ __device__ low& operator+=(float f) { return *this = low(v + f); }
};
"""
OPERATIONS = """
#define OPERATOR(op)                                                                                    \\
  template <class T> __device__ low operator op(low a, T b) { return low(a.v op float(b)); }           \\
  template <class T> __device__ low operator op(T a, low b) { return low(float(a) op b.v); }           \\
  __device__ inline low operator op(low a, low b) { return low(a.v op b.v); }
OPERATOR(+) OPERATOR(-) OPERATOR(*) OPERATOR(/)
#define __expf(v) low(__expf(v))
#define __fdividef(a, b) low(__fdividef(a, b))
"""
SUMS = re.compile(
    r"float(?= \w+_total\()|(?<=_total\()float|float(?= part\[| sum = 0\.0f)|, (?=sum = 0\.0f)"
)
ANY = re.compile(r"(?<!constexpr )\bfloat\b")
ONLY_MOVES = ("transpose", "embedding")
# Rows of the tasks without a known-good kernel: one warp to a row `r`, `i` is where column `c` lies.
ROWS = {
    "guidance": "ROW { low d = float(cond[i]) - float(uncond[i]), s = scale * d; y[i] = float(uncond[i]) + s; }",
    "modulate": "ROW { low g = 1 + float(scale[r / tokens * cols + c]), p = float(x[i]) * g;"
    " y[i] = p + float(shift[r / tokens * cols + c]); }",
    "mse_loss": "low s = 0; ROW { float d = prediction[i] - target[i]; s += d * d; } loss[r] = total(s) / cols;",
    "l2_normalize": "low s = 0; ROW { float v = x[i]; s += v * v; } s = total(s);"
    " ROW y[i] = float(x[i]) / fmaxf(sqrtf(s), 1e-12f);",
    "cross_entropy": "float m = -INFINITY; for (int k = 0; k < cols; k++) m = fmaxf(m, x[r * cols + k]);"
    " low s = 0; ROW s += expf(float(x[i]) - m); s = total(s);"
    " loss[r] = target[r] == -100 ? 0 : logf(s) + m - float(x[r * cols + target[r]]);",
    "softmax_backward": "low s = 0; ROW s += float(y[i]) * float(dy[i]); s = total(s);"
    " ROW dx[i] = float(y[i]) * (float(dy[i]) - s);",
}
ROW_KERNEL = """
#define ROW for (long c = threadIdx.x, i = r * cols + c; c < cols; c += 32, i += 32)
__device__ low total(low v) { for (int m = 16; m; m /= 2) v += __shfl_xor_sync(~0u, float(v), m); return v; }
__global__ void kernel(SIGNATURE) { long r = blockIdx.x; CODE }
extern "C" void launch(SIGNATURE, cudaStream_t stream) { kernel<<<COUNT, 32, 0, stream>>>(NAMES); }
"""


def in_low_precision(name: str) -> tuple[TaskHeader, str, str]:
    """A task, a right kernel, and the same with its sums (or, where it has none, all its numbers) too short."""
    unseen = name in ROWS
    header = read_task(
        (EVALS / ("unseen" if unseen else "tasks") / f"{name}.py").read_text(encoding="utf-8")
    )
    low = LOW.replace("TYPE", "__nv_bfloat16" if "bfloat16" in header.signature else "half")
    if not unseen:
        code = kernel(name)
        if "sum = 0.0f" in code:
            return (
                header,
                code,
                low + SUMS.sub(lambda found: "; low " if found[0] == ", " else "low", code),
            )
        wanting = code.replace(
            "fmaf(x, 1.0f / 0.9f, residual)", "float(low(low(x / 0.9f) + residual))"
        )
        if wanting == code:
            wanting = OPERATIONS + re.sub(r": ([01]\.0f);", r": low(\1);", ANY.sub("low", code))
        return header, code, low + wanting
    names = [argument.name for argument in header.arguments]
    signature = header.signature.replace("int channels", "int cols")
    code = ROW_KERNEL.replace("SIGNATURE", signature).replace("CODE", ROWS[name])
    code = code.replace("NAMES", ", ".join(names).replace("channels", "cols"))
    code = code.replace("COUNT", "batch * tokens" if "batch" in names else "rows")
    right = re.sub(r"v\(\w+\(f\)\)", "v(f)", low)
    return header, right + code, low + code


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="there is no NVIDIA GPU")
@pytest.mark.parametrize("name", sorted({*NAMES, *ROWS} - {*ONLY_MOVES}))
async def test_a_kernel_that_computes_in_half_precision_is_wrong(name: str) -> None:
    _, right, low = in_low_precision(name)
    task = f"{'unseen' if name in ROWS else 'tasks'}/{name}.py"
    async with await SANDBOXES.load("bubblewrap")().open(Setup()) as sandbox:
        for code, passes in ((right, True), (low, False)):
            evidence = Evidence(Trace((Step("assistant", f"```cuda\n{code}```"),)), sandbox=sandbox)
            line = {"kernel_correct": {"task": task, "sanitize": False}}
            finding = await read_check(
                line, "suite.yaml", lambda path: (EVALS / path).read_text("utf-8")
            ).check.run(evidence)
            assert finding.passed is passes, finding.reason
            assert passes or "elements are wrong" in finding.reason


def test_the_skill_is_short_and_shows_no_kernel_that_is_known_to_be_good() -> None:
    skill = Skill.load(EXAMPLE)
    assert skill.problems("strict") == []
    assert skill.tokens <= 600
    assert not [path for path in skill.resources if path.endswith((".cu", ".py", ".json"))]


def test_the_skill_is_made_of_the_trace_by_the_answer_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upskill: Upskill
) -> None:
    trace = read_trace(EVALS / "trace.json", "atif")
    assert sum(step.status == "error" for step in trace.steps) >= 4
    monkeypatch.chdir(tmp_path)
    shutil.copytree(EVALS, tmp_path / "evals")
    words = [
        "generate",
        "write a CUDA kernel for the H100 with a plain C launcher, as one complete file",
    ]
    words += [
        "--from",
        "evals/trace.json",
        "--handoff",
        "desk",
        "--no-eval",
        "--tests",
        "evals/suite.yaml",
    ]
    words += ["--tokens", "600", "--output", "skills/h100-kernels"]
    assert upskill(*words).code == 0
    (prompt,) = Path("desk").glob("*.prompt.md")
    shutil.copy(
        EVALS / "handoff" / "skill.answer.json", str(prompt).replace(".prompt.md", ".answer.json")
    )
    assert upskill(*words).code == 0
    assert Path("skills/h100-kernels/SKILL.md").read_text() == (EXAMPLE / "SKILL.md").read_text()
