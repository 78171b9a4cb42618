"""Checks of a CUDA kernel, in tiers that build on each other. A suite names one or all of them (`kernel`, in `tiers`):

    compiles    to a cubin for an architecture
    resources   registers, spills and shared memory within limits
    project     the folder is a project of kernel-builder (`project`)
    correct     on a GPU: right on inputs drawn after the answer is fixed
    faster      on a GPU: at least as fast as PyTorch, and right in every timed launch

The answer is one CUDA C++ file with a plain launcher. Its host code is never near a GPU: it runs in a sandbox against
`recorder.c`, which writes down what it would launch (`trial_run`). The `runner` carries that out between guard zones on
inputs drawn from a secret seed; its referee computes the reference (`task`) and compares every output. Beside these:
`build` (sources to a cubin), `cubin` (what is in one), `device` (the GPU), `gpu_process` (runner and referee from
outside), `fork_server` (starts them fast), `watched` (a launch under compute-sanitizer).
"""
