"""KernelBench problems become kernel tasks: the module is the reference, and the prompt names the launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Upskill
from upskill import Suite
from upskill.checks.kernel.task import read_task
from upskill.suites.kernelbench import assemble

RELU = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return torch.relu(self.norm(x))

batch_size = 4096
features = 1024
inner = (batch_size, features)

def get_inputs():
    return [torch.rand(*inner)]

def get_init_inputs():
    return [features]
"""
SEVERAL = RELU.replace("return torch.relu(self.norm(x))", "return x, x")


def probed(*shapes: tuple[int, int]) -> dict[str, Any]:
    """What the probe says of RELU."""
    runs = [
        {
            "shape": [rows, cols],
            "seen": {
                "x": [[rows, cols], "float32"],
                "norm_weight": [[cols], "float32"],
                "norm_bias": [[cols], "float32"],
                "out": [[rows, cols], "float32"],
            },
        }
        for rows, cols in shapes
    ]
    return {
        "sizes": {"batch_size": 4096, "features": 1024},
        "arguments": ["x"],
        "runs": runs,
        "why": "",
    }


def test_a_problem_becomes_a_task_with_its_own_sizes_timed_and_small_ones_checked() -> None:
    problems = assemble({"19_ReLU.py": RELU}, {"19_ReLU.py": probed((3, 5), (33, 19))})
    header = read_task(problems.tasks["tasks/19_ReLU.py"])
    assert (header.shapes, header.timed) == (((3, 5), (33, 19)), (4096, 1024))
    signature = (
        "const float* x, const float* norm_weight, const float* norm_bias, float* out, "
        "int batch_size, int features"
    )
    assert header.signature == signature
    case = yaml.safe_load(problems.suite)["cases"][0]
    assert case["id"] == "019-relu"
    assert f"launch({signature}, cudaStream_t stream)" in case["prompt"]
    assert "norm_weight is a float32 tensor of (features)." in case["prompt"]
    assert "return torch.relu(self.norm(x))" in case["prompt"]


def test_a_problem_that_cannot_be_run_small_is_left_out_by_name() -> None:
    problems = assemble(
        {"1_A.py": RELU, "2_B.py": RELU},
        {
            "1_A.py": probed((3, 5), (33, 19)),
            "2_B.py": {"runs": [], "why": "ValueError: too large"},
        },
    )
    assert list(problems.tasks) == ["tasks/1_A.py"]
    assert problems.left_out == {"2_B.py": "ValueError: too large"}


def test_a_folder_without_problems_and_a_missing_output_are_said(
    upskill: Upskill, home: Path
) -> None:
    (home / "other.py").write_text("print(1)", encoding="utf-8")
    assert "Add -o FOLDER" in upskill("import", "kernelbench:.").err
    done = upskill("import", "kernelbench:.", "-o", "suite")
    assert done.code == 2
    assert "no KernelBench problems" in done.err


def test_problems_are_probed_in_a_sandbox(upskill: Upskill, home: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    problems = home / "problems"
    problems.mkdir()
    (problems / "1_ReLU.py").write_text(RELU, encoding="utf-8")
    (problems / "2_Several.py").write_text(SEVERAL, encoding="utf-8")
    done = upskill("import", "kernelbench:problems", "-o", "suite")
    assert "wrote suite: 1 of 2 problems as kernel tasks" in done.out
    assert "left out: 2_Several.py: ValueError" in done.out
    assert [case.id for case in Suite.load(home / "suite" / "suite.yaml").cases] == ["001-relu"]


def test_what_is_timed_runs_the_module_without_building_it_again() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    names: dict[str, Any] = {}
    exec(
        assemble({"1_A.py": RELU}, {"1_A.py": probed((3, 5), (33, 19))}).tasks["tasks/1_A.py"],
        names,
    )
    drawn = names["inputs"]((3, 5), torch.float32, torch.Generator().manual_seed(0))
    first, second = names["eager"](**drawn)["out"], names["eager"](**drawn)["out"]
    assert torch.equal(first, second)
    assert names["_built"].cache_info().misses == 1
    assert not torch.equal(first, torch.relu(drawn["x"]))
