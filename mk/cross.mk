# cross.mk: macOS programs built on Linux by zig, which brings macOS' headers and libSystem (`pip install ziglang`, ZIG= names another).
