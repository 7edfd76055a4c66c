"""The llvm_cpu backend: kernels for the CPU through llvmlite, without a C++ compiler."""

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1
