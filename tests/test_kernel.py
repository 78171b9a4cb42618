"""Tiers 1 to 3 of the `kernel` check, by a real nvcc, and how a suite writes them."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, read_check, write_script, write_skill
from upskill.checks import CHECKS, Check, Evidence, Finding, read_checks
from upskill.checks.kernel import build as build_module
from upskill.checks.kernel import gpu_process, trial_run
from upskill.checks.kernel.build import find_code
from upskill.checks.kernel.cubin import read_cubin
from upskill.checks.kernel.task import read_signature, read_task
from upskill.errors import MissingTool, UsageError
from upskill.sandboxes import SANDBOXES, Sandbox, Setup
from upskill.sandboxes import gpu as toolchain
from upskill.suites import Suite
from upskill.traces import Step, Trace

FIXTURES = Path(__file__).parent / "fixtures" / "kernels"
GOOD = (FIXTURES / "affine.cu").read_text(encoding="utf-8")
TASK = (FIXTURES / "affine.py").read_text(encoding="utf-8")
HUNGRY = """
__global__ void hungry(float* out, int n) {
  __shared__ float shared[4096];
  float kept[24], picked[24];
#pragma unroll
  for (int i = 0; i < 24; i++) kept[i] = out[i * n + threadIdx.x];
  for (int i = 0; i < 24; i++) picked[i] = out[(i * 977 + threadIdx.x) % n];
  shared[threadIdx.x] = picked[n % 24];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 24; i++) out[i * n + threadIdx.x] = kept[i] + shared[(threadIdx.x + i) % 4096];
}
"""


@pytest.fixture(scope="module", autouse=True)
def nvcc() -> None:
    try:
        toolchain.find_toolchain()
    except MissingTool as missing:
        pytest.skip(missing.message)


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with await SANDBOXES.load("bubblewrap")().open(Setup()) as opened:
        yield opened


async def look(line: dict[str, Any], sandbox: Sandbox, answer: str = "done") -> Finding:
    evidence = Evidence(Trace((Step("assistant", answer),)), sandbox=sandbox)
    return await read_check(line, "suite.yaml", lambda _: TASK).check.run(evidence)


# Tiers 1 and 2.


async def test_a_file_compiles_for_the_h100_and_says_what_it_takes(sandbox: Sandbox) -> None:
    await sandbox.write(
        "src/scale.cuh", "__device__ inline float scale(float x) { return 2.0f * x + 1.0f; }\n"
    )
    await sandbox.write(
        "src/kernel.cu", GOOD.replace("#include", '#include "scale.cuh"\n#include', 1)
    )
    passed = await look({"kernel_compiles": {"file": "src/kernel.cu"}}, sandbox)
    assert passed == Finding(True, "compiles for sm_90a: _Z6affinePKfPfi")
    takes = await look({"kernel_resources": {"file": "src/kernel.cu", "registers": 32}}, sandbox)
    assert takes.passed
    assert takes.reason.endswith(
        " registers, 0 bytes of spills, 0 bytes of shared memory, 0 bytes of stack"
    )


async def test_the_compiler_speaks_for_itself_and_later_tiers_fail_with_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_process, "DEVICES", ("/dev/null",))
    monkeypatch.setattr(gpu_process, "SERVER", ("never", "started"))
    answer = f"```cuda\n{GOOD.replace('2.0f * x[i]', '2.0f * y[i]')}```"
    said = 'does not compile for sm_90a: kernel.cu(4): error: identifier "y" is undefined'
    for tier in ("kernel_compiles", "kernel_resources", "kernel_correct", "kernel_faster"):
        task = {"task": "affine.py"} if tier in ("kernel_correct", "kernel_faster") else {}
        finding = await look({tier: task}, sandbox, answer)
        assert not finding.passed
        assert finding.reason.startswith(said), finding.reason


async def test_registers_spills_and_shared_memory_have_limits(sandbox: Sandbox) -> None:
    await sandbox.write("kernel.cu", HUNGRY)
    over = await look({"kernel_resources": {"shared": 8192}}, sandbox)
    assert over == Finding(
        False, "_Z6hungryPfi has 16384 bytes of shared memory, and at most 8192 are allowed"
    )
    stack = await look({"kernel_resources": {"stack": 0}}, sandbox)
    assert stack == Finding(False, "_Z6hungryPfi has 96 bytes of stack, and at most 0 are allowed")
    few = await look({"kernel_resources": {"registers": 8}}, sandbox)
    assert not few.passed
    assert few.reason.endswith(" registers, and at most 8 are allowed")
    squeezed = await look({"kernel_resources": {"flags": ["-maxrregcount", "16"]}}, sandbox)
    assert not squeezed.passed
    assert squeezed.reason.endswith(" bytes of spills, and at most 0 are allowed")
    assert (await look({"kernel_resources": {"shared": 16384}}, sandbox)).passed


async def test_code_without_a_kernel_fails_and_so_does_no_code(sandbox: Sandbox) -> None:
    none = await look({"kernel_compiles": {}}, sandbox, "I would use shared memory.")
    assert none == Finding(
        False, "there is no kernel.cu, and the answer has no code with a __global__ function"
    )
    await sandbox.write("kernel.cu", "int add(int a, int b) { return a + b; }\n")
    host = await look({"kernel_compiles": {}}, sandbox)
    assert not host.passed
    assert "no __global__ function" in host.reason


@pytest.mark.parametrize(
    "pragma",
    [
        R"\\",  # PTX has no escapes: this text ends at the next quote
        "Compiling entry function '_Z5firstPf' for 'sm_90a'",
        R"\n: Function properties for _Z6hungryPfi\n 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
    ],
)
async def test_spills_count_whatever_the_code_makes_the_compiler_print(
    sandbox: Sandbox, pragma: str
) -> None:
    decoy = f'__global__ void %s(float* out) {{ asm volatile(".pragma \\"{pragma}\\";"); out[0] = 1; }}\n'
    await sandbox.write("kernel.cu", decoy % "first" + HUNGRY + decoy % "last")
    squeezed = await look({"kernel_resources": {"flags": ["-maxrregcount", "16"]}}, sandbox)
    assert not squeezed.passed
    assert re.search(
        r"_Z6hungryPfi has [1-9]\d* bytes of spills, and at most 0 are allowed|cannot be used",
        squeezed.reason,
    )
    stack = await look({"kernel_resources": {"stack": 0}}, sandbox)
    assert not stack.passed


async def test_what_a_kernel_takes_is_read_from_the_cubin(sandbox: Sandbox) -> None:
    await sandbox.write(
        "kernel.cu",
        """struct Pair { char a[24]; double b; };
__device__ __noinline__ float called(float* p, int n) { float a[30]; p[n] = a[n % 30]; return p[n] + a[n % 7]; }
__global__ void first(Pair p, float* out, char c) { __shared__ float s[100]; s[c] = p.b; out[c] = s[c + 1]; }
__global__ void second() {}
extern "C" __global__ void third(float* p, int n) { p[0] = called(p, n); }
#ifdef main
#error it can tell that it is checked
#endif
int main() {}
""",
    )
    sources = await build_module.read_sources(
        Evidence(Trace(()), sandbox=sandbox), "kernel.cu", "third"
    )
    assert isinstance(sources, dict)
    made = await build_module.build(
        Evidence(Trace(()), sandbox=sandbox), sources, "kernel.cu", "sm_90a", seconds=60
    )
    kernels = {kernel.name: kernel for kernel in made.kernels}
    assert {name: (kernel.parameters, kernel.shared) for name, kernel in kernels.items()} == {
        "_Z5first4PairPfc": ((32, 8, 1), 400),
        "_Z6secondv": ((), 0),
        "third": ((8, 4), 0),
    }
    assert all(kernel.registers for kernel in kernels.values())


def test_a_cubin_that_says_other_than_the_compiler_is_refused() -> None:
    kernel = build_module.CompiledKernel("k", (), stack=96)
    line = "Function properties for {}\n    {} bytes stack frame, 4 bytes spill stores, 8 bytes spill loads"
    assert build_module.add_spills([kernel], line.format("k", 96))[0].spills == 12
    for messages in ("", line.format("k", 0), line.format("other", 96)):
        with pytest.raises(ValueError, match="96 bytes of stack for k, but ptxas reports"):
            build_module.add_spills([kernel], messages)
    with pytest.raises(ValueError, match="not a readable cubin"):
        read_cubin(b"\x7fELF")


async def test_what_a_student_leaves_is_never_an_error_of_the_machine(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = await look(
        {"kernel_compiles": {"file": "kernel.txt"}}, sandbox, f"```\n// \ud83d\n{GOOD}```"
    )
    assert half.passed
    await sandbox.write("out/kernel.cuh", "// a folder that the compiler is given, too\n")
    await sandbox.write("kernel.cu", f"#error nvcc fatal\n{GOOD}")
    finding = await look({"kernel_compiles": {}}, sandbox)
    assert not finding.passed
    assert "#error nvcc fatal" in finding.reason
    with monkeypatch.context() as patched:
        patched.setattr(build_module, "MAX_CODE_BYTES", 100)
        await sandbox.write("kernel.cu", GOOD)
        large = await look({"kernel_compiles": {}}, sandbox)
    assert not large.passed
    assert "at most 100 are read" in large.reason
    with pytest.raises(
        MissingTool, match=r"nvcc cannot compile this here: nvcc fatal .*no-such-option"
    ):
        await look({"kernel_compiles": {"flags": ["--no-such-option"]}}, sandbox)


async def test_a_file_that_never_ends_compiling_is_the_students(sandbox: Sandbox) -> None:
    bomb = "template <int N> struct T { static constexpr long v = T<N - 1>::v + T<N - 2>::v; };\n"
    await sandbox.write("kernel.cu", f"{bomb}__global__ void f(long* x) {{ *x = T<100000>::v; }}\n")
    finding = await look({"kernel_compiles": {"compile_timeout": 60.0}}, sandbox)
    assert not finding.passed


async def test_nvcc_from_packages_compiles_in_the_sandbox(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = next(toolchain.packaged(), None)
    if packaged is None:
        pytest.skip("the packages of upskill[cuda] are not installed")
    monkeypatch.setattr(toolchain, "_candidates", lambda: iter([packaged]))
    found = toolchain.find_toolchain()
    assert found.nvcc == str(packaged)
    assert found.mounts == (packaged.parent.parent,)
    monkeypatch.setattr(build_module, "_built", type(build_module._built)())  # pyright: ignore[reportPrivateUsage]
    answer = f"```\n#include <cuda/std/cstddef>\n{GOOD}```"
    assert (await look({"kernel_compiles": {}}, sandbox, answer)).passed


async def test_a_machine_without_nvcc_is_an_error_that_says_what_to_install(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> Iterator[Path]:
        return iter([Path("/nowhere/nvcc")])

    monkeypatch.setattr(toolchain, "_candidates", nothing)
    with pytest.raises(MissingTool, match=r"no CUDA compiler \(nvcc\).*without root.*\[cuda\]"):
        await look({"kernel_compiles": {}}, sandbox, f"```\n{GOOD}```")


async def test_a_machine_without_a_gpu_is_an_error_whatever_the_answer(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_process, "DEVICES", ("/dev/there-is-no-gpu*",))
    for answer in ("", f"```\n{GOOD}```"):
        for tier in ("kernel_correct", "kernel_faster"):
            with pytest.raises(MissingTool, match="there is no NVIDIA GPU on this machine"):
                await look({tier: {"task": "affine.py"}}, sandbox, answer)
    monkeypatch.setattr(gpu_process, "DEVICES", ("/dev/null",))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingTool, match="PyTorch is not installed in upskill's environment"):
        await look({"kernel_correct": {"task": "affine.py"}}, sandbox, f"```\n{GOOD}```")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            "text\n```cuda\n__global__ launch\n```\nuse it:\n```python\nlaunch()\n```",
            "__global__ launch\n",
        ),
        ("```\n__global__ a\n```\nand\n```\nlaunch\n```", "__global__ a\n\nlaunch\n"),
        (
            "```\n__global__ first launch\n```\nbetter:\n```\n__global__ second launch\n```",
            "__global__ second launch\n",
        ),
        ("```cpp\n__global__ launch never closed", "__global__ launch never closed\n"),
        ("__global__ launch without a fence", "__global__ launch without a fence"),
        ("```cuda\n__global__ launch\n}```", "__global__ launch\n}\n"),
        ("```cuda\n__global__ launch\n} ```\n\nIt is fast.", "__global__ launch\n} \n"),
        (
            "1. Do:\n\n    ```cuda\n    __global__ {\n      launch\n    ```\n2. Rest.",
            "__global__ {\n  launch\n",
        ),
        ("\ufeff```cuda\r\n__global__ launch\f\u2028\r\n```\r\n", "__global__ launch\f\u2028\n"),
        ('```\n__global__ launch(R"(\n    ```\n)")\n```', '__global__ launch(R"(\n    ```\n)")\n'),
        ("```\n__global__ only\n```", "__global__ only\n"),
        (
            "```\n__global__ __launch_bounds__(256) a\n```\nand\n```\nlaunch\n```",
            "__global__ __launch_bounds__(256) a\n\nlaunch\n",
        ),
        (
            "```cuda\n__global__ launch\n```\n```python\nlaunch()  # __global__\n```",
            "__global__ launch\n",
        ),
        ("```python\n__global__ launch\n```", "__global__ launch\n"),
        ("no code", None),
        ("```\nnothing\n```", None),
    ],
)
def test_code_is_found_however_a_model_fences_it(answer: str, code: str | None) -> None:
    assert find_code(answer, ("launch", "__global__")) == code


async def test_a_launcher_in_a_block_of_its_own_has_to_compile_too(sandbox: Sandbox) -> None:
    kernel, launcher = GOOD.split('extern "C"')
    whole = f'```cuda\n{kernel}```\nand its launcher:\n```cuda\nextern "C"{launcher}```'
    assert (await look({"kernel_compiles": {}}, sandbox, whole)).passed
    broken = await look({"kernel_compiles": {}}, sandbox, whole.replace("affine<<<", "afine<<<"))
    assert not broken.passed
    assert '"afine" is undefined' in broken.reason
    other = "```cuda\n__global__ void other(float* x) {\n```\n"
    quoted = f"The file:\n\n```cuda\n{GOOD}```\n\nWithout the check:\n\n{other}"
    assert (await look({"kernel_compiles": {}}, sandbox, quoted)).passed


# Tier 3.

BUILD = """[general]
name = "fast-norm"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
src = [
  "torch-ext/torch_binding.cpp",
  "torch-ext/torch_binding.h",
]

[kernel.norm]
backend = "cuda"
depends = ["torch"]
src = ["norm_cuda/norm.cu"]
cuda-capabilities = ["9.0"]
"""
PROJECT = {
    "build.toml": BUILD,
    "torch-ext/torch_binding.cpp": "#include <torch/library.h>\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}\n",
    "torch-ext/torch_binding.h": "#pragma once\n",
    "torch-ext/fast_norm/__init__.py": "from ._ops import ops\n",
    "norm_cuda/norm.cu": GOOD,
}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "", "a kernel-builder project, edition 5, for sm_90a"),
        ('"9.0"', '"9.0a", "10.0"', "a kernel-builder project, edition 5, for sm_90a"),
        ('cuda-capabilities = ["9.0"]\n', "", "a kernel-builder project, edition 5, for sm_90a"),
        ("edition = 5", "edition = 3", "build.toml:4: edition 3 is not the current one, 5"),
        ("edition = 5\n", "", "build.toml:1: [general] has no edition"),
        (
            "version = 1",
            'version = "1.0"',
            "build.toml:3: version must be a whole number, not '1.0'",
        ),
        ("norm_cuda/norm.cu", "norm.cu", "build.toml:17: norm.cu does not exist"),
        ("torch_binding.h", "binding.h", "build.toml:11: torch-ext/binding.h does not exist"),
        ('"9.0"', '"8.0", "8.9"', "build.toml:18: 8.0, 8.9 leave out 9.0, which is sm_90a"),
        (
            "cuda-capabilities",
            "capabilities",
            "build.toml:18: unknown key 'capabilities'; it is now cuda-capabilities",
        ),
        (
            '["9.0"]',
            '"9.0"',
            "build.toml:18: cuda-capabilities must be a list of strings, not '9.0'",
        ),
        (
            '["9.0"]',
            "[9.0]",
            "build.toml:18: cuda-capabilities must be a list of strings, not [9.0]",
        ),
        (
            'backends = ["cuda"]',
            'backends = ["rocm"]',
            "build.toml:6: backends does not list 'cuda'",
        ),
        (
            'backends = ["cuda"]',
            'backends = "cuda"',
            "build.toml:6: backends must be a list of strings, not 'cuda'",
        ),
        (
            "version = 1",
            f"version = {'9' * 5000}",
            "build.toml is not valid TOML: Exceeds the limit",
        ),
        ("version = 1", f"version = {'[' * 5000}", "build.toml is not valid TOML: "),
        ("[general]", "\ufeff[general]", "a kernel-builder project, edition 5, for sm_90a"),
        (
            '"torch-ext/torch_b',
            '"./torch-ext/torch_b',
            "a kernel-builder project, edition 5, for sm_90a",
        ),
        ('backend = "cuda"', 'backend = "nvidia"', "build.toml:15: 'nvidia' is not a backend"),
        (
            "fast-norm",
            "fast-nrm",
            "torch-ext/fast_nrm/__init__.py: the kernel's Python package is missing",
        ),
        (
            "[kernel.norm]",
            "[kernel.norm",
            "build.toml is not valid TOML: Expected ']' at the end of a table declaration",
        ),
        (
            "[torch]\nsrc",
            "[pytorch]\nsrc",
            "build.toml:8: unknown key 'pytorch'; Did you mean 'torch'",
        ),
    ],
)
async def test_a_project_of_kernel_builder_is_read_line_by_line(
    sandbox: Sandbox, old: str, new: str, reason: str
) -> None:
    assert old in BUILD
    for path, text in (
        PROJECT | {"build.toml": BUILD.replace(old, new, 1) if old else BUILD}
    ).items():
        await sandbox.write(f"project/{path}", text)
    finding = await look({"kernel_project": {"folder": "./project"}}, sandbox)
    assert finding.reason.startswith(reason), finding.reason
    assert finding.passed is reason.startswith("a kernel-builder project")


async def test_a_project_needs_a_binding_that_registers_something(sandbox: Sandbox) -> None:
    for path, text in PROJECT.items():
        await sandbox.write(path, text)
    said = "TORCH_LIBRARY(x, y) {}"
    for binding in (
        "// nothing yet\n",
        f"// {said}\n",
        f"/*\n{said}\n*/\n",
        f"/* {said}",
        f'auto x = "\\"{said}";\n',
    ):
        await sandbox.write("torch-ext/torch_binding.cpp", binding)
        finding = await look({"kernel_project": {}}, sandbox)
        assert finding == Finding(
            False, "torch-ext: no source of [torch] registers anything with TORCH_LIBRARY"
        )
    await sandbox.write("torch-ext/torch_binding.cpp", f'#include "x.h"  // it\'s "here\n{said}\n')
    assert (await look({"kernel_project": {}}, sandbox)).passed
    assert (
        await look({"kernel_project": {"folder": "elsewhere"}}, sandbox)
    ).reason == "elsewhere/build.toml: does not exist"


# How a suite writes them.

SUITE: dict[str, Any] = {
    "cases": [
        {
            "id": "affine",
            "prompt": "Write it.",
            "checks": [
                {"kernel": {"task": "affine.py", "resources": {"registers": 64}, "at_least": 0.9}}
            ],
        }
    ]
}


def test_one_block_stands_for_a_check_a_tier_and_the_task_is_part_of_the_case() -> None:
    suite = Suite.parse(SUITE, "suite.yaml", lambda _: TASK.encode())
    names = [named.name for named in suite.cases[0].checks]
    assert names == ["kernel_compiles", "kernel_resources", "kernel_correct", "kernel_faster"]
    assert not issubclass(CHECKS.load("kernel"), Check)
    slow = read_checks(
        {"kernel": {"tiers": ["compiles", "resources"], "compile_timeout": 300}}, "suite.yaml"
    )
    assert [named.config["compile_timeout"] for named in slow] == [300, 300]
    assert suite.cases[0].checks[3].config["source"] == TASK
    again = Suite.parse(suite.to_dict(), "stored")
    assert again.fingerprint == suite.fingerprint
    other = Suite.parse(SUITE, "suite.yaml", lambda _: TASK.replace("2 *", "3 *").encode())
    assert other.fingerprint != suite.fingerprint
    assert replace(suite.cases[0], tags=("x",)).fingerprint == suite.cases[0].fingerprint


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"tiers": ["correct"]}, "the 'correct' tier needs a task, a Python file beside the suite"),
        ({"task": "affine.py", "tiers": ["fast"]}, "Input should be 'compiles'"),
        ({"task": "affine.py", "arch": "h100"}, "arch: String should match pattern .*, not 'h100'"),
        ({"task": "affine.py", "arch": "sm_90aa"}, "arch: String should match pattern"),
        ({"tiers": ["compiles", "compiles"]}, "names 'compiles' twice"),
        (
            {"tiers": ["compiles"], "timeout": 300},
            "timeout applies to the GPU tiers.*compile_timeout applies to the compiler",
        ),
        ({"task": "affine.py", "resources": {"regs": 3}}, "unknown field 'regs'"),
        ({"task": "affine.py", "than": []}, "`than` is empty"),
        (
            {"tiers": ["compiles"], "resources": {"spills": 0}},
            "tiers does not list 'resources'; add it there",
        ),
        (
            {"tiers": ["compiles"], "project": {"folder": "x"}},
            "tiers does not list 'project'; add it there",
        ),
    ],
)
def test_a_block_that_cannot_be_read_says_why(said: dict[str, Any], message: str) -> None:
    case = {"prompt": "Write it.", "checks": [{"kernel": said}]}
    with pytest.raises(UsageError, match=message):
        Suite.parse({"cases": [case]}, "suite.yaml", lambda _: TASK.encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("SIGNATURE", "SIGN"), "has no SIGNATURE"),
        (("def reference", "def ref"), "has no function reference"),
        (("SHAPES = [(1,), (17,), (300,)]\nTIMED = (1000,)", ""), "has no SHAPES"),
        (("(17,)", "(0,)"), "SHAPES.1.0: Input should be greater than 0, not 0"),
        (("int n", "struct S n"), "'struct S' is not a type that can be passed"),
        (("SHAPES = [", "SHAPES = list() + ["), "SHAPES must be a literal"),
        (("def inputs", "def inputs("), "line 16 is not valid Python"),
        (
            ("SHAPES = [(1,), (17,), (300,)]", "SHAPES = 5"),
            "SHAPES: Input should be a valid tuple, not 5",
        ),
        (
            ("SHAPES = [", "SHAPES: list[tuple[int]] = [0, "),
            "SHAPES.0.0: Input should be greater than 0, not 0",
        ),
        (("(17,)", "(True,)"), "SHAPES.1.0: Input should be a valid integer, not True"),
        (('"float32"', '"flot32"'), "DTYPES.0: String should match pattern"),
        (
            ("SCRATCH = 65536", "SCRATCH = None"),
            "SCRATCH: Input should be a valid integer, not None",
        ),
        (("SCRATCH = 65536", "EXACT = 'no'"), "EXACT: Input should be a valid boolean, not 'no'"),
        (
            ("SCRATCH = 65536", "TOLERANCE = {'float32': 1e-3}"),
            "TOLERANCE.float32: Input should be a valid tuple",
        ),
        (
            ("SCRATCH = 65536", "TOLERANCE = {'float32': (0, 1e999)}"),
            "TOLERANCE.float32.1: Input should be a finite",
        ),
        (("SCRATCH = 65536", "TOLERENCE = {'float32': (1, 1)}"), "did you mean TOLERANCE"),
        (("SCRATCH = 65536", "SCRATCH = {[]: 1}"), "SCRATCH must be a literal"),
        (("int n", "int n, cudaStream_t stream"), "SIGNATURE: leave the stream out"),
        (("SCRATCH = 65536", "SCRATCH = 65536\0"), "is not valid Python"),
        (("int n", "int x"), "two arguments are named 'x'"),
    ],
)
def test_a_task_that_says_too_little_is_refused_with_the_suite(
    change: tuple[str, str], message: str
) -> None:
    assert change[0] in TASK
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        read_task(TASK.replace(*change))


@pytest.mark.parametrize(
    "forged",
    [
        "memset 10 0 -5 5712ea3000",
        "memcpy 10 20 -5 5712ea3000",
        "launch k 1",
        "launch other",
        "erase all",
        "x",
    ],
)
def test_a_plan_that_a_launcher_forged_is_not_carried_out(forged: str) -> None:
    made = build_module.Build(kernels=(build_module.CompiledKernel("k", (8,)),))
    with pytest.raises(trial_run.BadLauncher, match="no readable plan"):
        trial_run.read_plans(f"call\n{forged}\nend\n", made, 1, "")


def test_what_is_wrong_with_a_task_is_said_with_its_file() -> None:
    case = {"prompt": "Write it.", "checks": [{"kernel": {"task": "tasks/affine.py"}}]}
    with pytest.raises(
        UsageError,
        match=r"kernel_correct: tasks/affine\.py: SHAPES: Input should be a valid tuple, not 5",
    ):
        Suite.parse(
            {"cases": [case]},
            "suite.yaml",
            lambda _: re.sub("SHAPES = .*", "SHAPES = 5", TASK).encode(),
        )
    marked = Suite.parse({"cases": [case]}, "suite.yaml", lambda _: f"\ufeff{TASK}".encode())
    assert marked.cases[0].checks[2].config["source"] == TASK


def test_arguments_are_passed_by_their_own_types() -> None:
    kinds = [
        one.kind
        for one in read_signature(
            "const half *x, float* __restrict__ out, int n, long long m, float f"
        )
    ]
    assert kinds == ["pointer", "pointer", "int", "long", "float"]
    header = read_task(
        TASK.replace("float* out, int n", "float* out, int n, float eps, double d, int64_t m")
    )
    words = header.to_words({"x": 16, "out": 32, "n": -1, "eps": 1.0, "d": 1.0, "m": 2**40})
    assert words == [16, 32, 2**64 - 1, 0x3F800000, 0x3FF0000000000000, 2**40]


# From a student's answer to a table by tier.

BROKEN = GOOD.replace("2.0f * x[i]", "2.0f * y[i]")
GREEDY = GOOD.replace(
    "float* out, int n) {",
    "float* out, int n) {\n  __shared__ float waste[4096];\n  waste[threadIdx.x] = n;",
    1,
).replace("+ 1.0f;", "+ waste[(threadIdx.x + 1) % n];", 1)


def test_show_says_how_far_students_get_tier_by_tier(upskill: Upskill, home: Path) -> None:
    checks = [{"kernel": {"tiers": ["compiles", "resources"], "resources": {"shared": 1024}}}]
    cases = [
        {"id": f"case-{number}", "prompt": f"Write kernel {number}.", "checks": checks}
        for number in range(3)
    ]
    write_skill(home / "skill", suite={"cases": cases})
    fenced = {
        name: f"```cuda\n{code}```"
        for name, code in (("good", GOOD), ("broken", BROKEN), ("greedy", GREEDY))
    }
    rules = [
        {"system": "ahoy", "when": "kernel 0", "answer": fenced["greedy"]},
        {"system": "ahoy", "answer": fenced["good"]},
        {"when": "kernel 2", "answer": "I cannot."},
        {"answer": fenced["broken"]},
    ]
    write_script(home / "student.yaml", rules)
    assert upskill("eval", "skill", "-m", "scripted:student.yaml").code == 0
    rates = {
        (row["check"], row["arm"]): row
        for row in upskill("show", "last", "--checks", "--json").json["checks"]
    }
    assert [(row["passed"], row["trials"]) for row in rates.values()] == [
        (0, 3),
        (3, 3),
        (0, 3),
        (2, 3),
    ]
    low, high = rates["kernel_resources", "skill"]["interval"]
    assert low < 2 / 3 < high
    shown = upskill("show", "last", "--checks").out
    assert "scripted:student.yaml" in shown
    assert "kernel_compiles" in shown
    assert re.search(r"kernel_compiles .* skill +100%", shown)
    assert (
        "_Z6affinePKfPfi has 16384 bytes of shared memory, and at most 1024 are allowed"
        in upskill("show", "last").out
    )


def test_without_a_gpu_nothing_is_asked_and_it_says_what_to_install(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_process, "DEVICES", ("/dev/there-is-no-gpu*",))
    case = {
        "prompt": "Write it.",
        "checks": [{"kernel": {"task": "affine.py", "tiers": ["correct"]}}],
    }
    write_skill(home / "skill", suite={"cases": [case, case | {"prompt": "Write it once more."}]})
    (home / "skill" / "evals" / "affine.py").write_text(TASK, encoding="utf-8")
    write_script(home / "student.yaml", [{"answer": f"```cuda\n{GOOD}```"}])
    done = upskill("eval", "skill", "-m", "scripted:student.yaml")
    assert done.code == 3
    assert "upskill: there is no NVIDIA GPU on this machine" in done.err
    assert "`tiers: [compiles, resources]` works without it" in done.err
    assert "No stored run has a result yet" in upskill("runs").err


def test_an_architecture_that_nvcc_does_not_know_is_said_before_anything_is_asked(
    upskill: Upskill, home: Path
) -> None:
    case = {"prompt": "Write it.", "checks": [{"kernel": {"tiers": ["compiles"], "arch": "sm_30"}}]}
    write_skill(home / "skill", suite={"cases": [case, case | {"prompt": "Write it once more."}]})
    write_script(home / "student.yaml", [{"answer": f"```cuda\n{GOOD}```"}])
    done = upskill("eval", "skill", "-m", "scripted:student.yaml")
    assert done.code == 3
    assert re.search(
        r"cannot compile for sm_30; it supports .*sm_90.*\. Set `arch` to one of these", done.err
    )
    assert "No stored run has a result yet" in upskill("runs").err
    check = read_check({"kernel_compiles": {"arch": "sm_90a"}}, "suite.yaml").check
    check.expect_tools()


def test_a_compiler_that_does_not_say_what_it_compiles_for_is_tried(tmp_path: Path) -> None:
    toolchain.expect_architecture(str(tmp_path / "nvcc"), "sm_90a")
