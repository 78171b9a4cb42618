"""A student cannot fake a check that builds with Go, Cargo or CMake: plants that run for real where these are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from test_hostile_students import Plant, command, leave
from upskill.sandboxes import SandboxBackend, choose_sandbox

GO = {
    "go.mod": "module sums\n\ngo 1.19\n",
    "add.go": "package sums\n\nfunc Add(a, b int) int { return a - b }\n",
    "add_test.go": """package sums

import "testing"

func TestAdd(t *testing.T) {
	if Add(2, 3) != 5 {
		t.Fatal("wrong")
	}
}
""",
}
GO_TEST = command("go test ./...", timeout=600)
CARGO = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a - b }\n",
    "tests/adds.rs": "#[test]\nfn adds() { assert_eq!(sums::add(2, 3), 5); }\n",
}
CARGO_TEST = command("cargo test", timeout=600)
RUNNER = "[target.'cfg(all())']\\nrunner = \"true\"\\n"
CMAKE = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(sums C)\nenable_testing()\n"
    "add_executable(adds test_adds.c add.c)\nadd_test(NAME adds COMMAND adds)\n",
    "add.c": "int add(int a, int b) { return a - b; }\n",
    "test_adds.c": "int add(int, int);\nint main(void) { return add(2, 3) == 5 ? 0 : 1; }\n",
}
CTEST = command("cmake -S . -B build && cmake --build build && ctest --test-dir build", timeout=600)
EXITS = 'package sums; import ("os"; "testing"); func TestMain(m *testing.M) { os.Exit(0) }'
PLANTS = {
    "go": {
        "an edited test": "echo 'package sums' > add_test.go",
        "TestMain": f"echo '{EXITS}' > zz_test.go",
        "go.mod": "printf 'module other\\n' > go.mod; mkdir -p x; mv add_test.go x/",
        "go.work": "mkdir y; printf 'module y\\n' > y/go.mod; printf 'go 1.19\\nuse ./y\\n' > go.work; rm add_test.go",
        "go env -w": "go env -w GOFLAGS=-run=NONE; export GOFLAGS=-run=NONE",
        "a build tag": "sed -i '1i //go:build never\\n' add_test.go",
    },
    "cargo": {
        "an edited test": "echo > tests/adds.rs",
        "a runner": f"mkdir .cargo; printf '{RUNNER}' > .cargo/config.toml",
        "a runner in home": f"mkdir -p ~/.cargo; printf '{RUNNER}' > ~/.cargo/config.toml",
        "tests turned off": "sed -i 's/^version/autotests = false\\nversion/' Cargo.toml",
        "rust-toolchain": "echo none > rust-toolchain",
        "build.rs": 'echo \'fn main() { std::fs::write("tests/adds.rs", "").unwrap(); }\' > build.rs',
        "a built test": "sed -i 's/a - b/a + b/' src/lib.rs; touch -d 2000-01-01 src/lib.rs; cargo test; "
        "sed -i 's/a + b/a - b/' src/lib.rs; touch -d 2000-01-01 src/lib.rs tests/adds.rs Cargo.toml",
    },
    "cmake": {
        "CMakeLists.txt": "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(a NONE)\\n' > CMakeLists.txt",
        "an edited test": "echo 'int main(void) { return 0; }' > test_adds.c",
        "CTestCustom.cmake": "mkdir build; echo 'set(CTEST_CUSTOM_TESTS_IGNORE adds)' > build/CTestCustom.cmake",
        "the cache": "cmake -S . -B build -DCMAKE_C_COMPILER_LAUNCHER=true -DCMAKE_CROSSCOMPILING_EMULATOR=/bin/true",
    },
}
BROUGHT = {"go": (GO, GO_TEST), "cargo": (CARGO, CARGO_TEST), "cmake": (CMAKE, CTEST)}
RIGHT = {
    "go": "sed -i 's/a - b/a + b/' add.go",
    "cargo": "sed -i 's/a - b/a + b/' src/lib.rs",
    "cmake": "sed -i 's/a - b/a + b/' add.c",
}


@pytest.fixture
async def kind(home: Path) -> SandboxBackend:
    return (await choose_sandbox("bubblewrap")).backend


@pytest.mark.parametrize("tool", PLANTS)
async def test_no_plant_passes_and_none_errors_its_way_out(tool: str, kind: SandboxBackend) -> None:
    if shutil.which(tool, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"{tool} is not installed where a sandbox sees it")
    files, checks = BROUGHT[tool]
    said: dict[str, str] = {}
    for name, plant in PLANTS[tool].items():
        await leave(
            kind,
            Plant(plant, checks, files=files, prompt="Fix the bug."),
            lambda what, name=name: said.update({name: what}),
        )
    assert said == {}
    honest = Plant(RIGHT[tool], checks, files=files, prompt="Fix the bug.")
    await leave(kind, honest, lambda what: said.update({"honest": what}))
    assert said["honest"].startswith("passed")
