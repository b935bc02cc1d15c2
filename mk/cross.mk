# cross.mk: macOS programs built on Linux by zig, which brings macOS' headers and libSystem (pip install ziglang; ZIG names another).

.PHONY: cross-macos cross-macos-arm64 cross-macos-x86_64
#: cross-macos program and libraries for macOS, arm64 and x86-64, linked and their imports checked; needs zig and llvm
cross-macos: cross-macos-arm64 cross-macos-x86_64
cross-macos-arm64 cross-macos-x86_64: cross-macos-%:
	+@sh tools/cross_macos $* build/macos-$*
