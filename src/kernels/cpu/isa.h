/* isa.h: the name of the instruction set that a kernel file is compiled for (-DAN_ISA=avx512bf16 and so on). */
#ifndef AN_KERNELS_CPU_ISA_H
#define AN_KERNELS_CPU_ISA_H

#define AN_ISA_JOIN_(isa, name) an_##isa##_##name
#define AN_ISA_JOIN(isa, name)  AN_ISA_JOIN_(isa, name)
#define AN_ISA_NAME(name)       AN_ISA_JOIN(AN_ISA, name) /* an_avx2_gemm */

/* 1: compiled for tile registers, or with their arithmetic in plain C (gemm_tiles.h). */
#ifndef AN_TILES
#define AN_TILES 0
#endif
#define AN_REST_NAME(name)                                                                                             \
    AN_ISA_JOIN(AN_REST_ISA, name) /* the same function of the set that this one takes the rest from */

#endif
