"""Checks of a CUDA kernel, in tiers that build on each other. A suite names one or all of them (`kernel`, in `tiers`):

    compiles    to a cubin for an architecture
    resources   registers, spills and shared memory within limits
    project     the folder is a project of kernel-builder
    correct     on a GPU: right on inputs drawn after the answer is fixed
    faster      on a GPU: at least as fast as PyTorch, and right in every timed launch

The answer is one CUDA C++ file with a plain launcher, `extern "C" void launch(pointers and sizes, cudaStream_t)`. Its
host code is never near a GPU: it runs in a sandbox against `recorder.c`, which writes down what it would launch
(`plans`). The `runner`, a process of ours, carries that out between guard zones on inputs drawn from a secret seed; its
referee, another one, computes the reference (`task`: what a suite says about a kernel) and compares every output.

Beside these: `tiers` (the checks; `project` is one of its own), `build` (sources to a cubin, with what ptxas says),
`device` (the GPU, by its driver and PyTorch), `gpu_process` (runner and referee from outside), `fork_server` (starts
them fast), `watched` (a launch under compute-sanitizer), `trial_run` (from a build to what came of it on the GPU).
"""
