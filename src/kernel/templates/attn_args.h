/* attn_args.h: what an attention launch is told at run time, and what its three kernels agree on about one query and one key.
 * Kinds, head size and tile sizes are compiled in; extents and strides are not, so that one kernel serves every length.
 * Strides are in elements, of (b, h, t), as in an_attn_spec. The same bytes in C, CUDA and MSL: the wide members come first. */
struct an_attn_args {
    an_i64 q[3], k[3], v[3], o[3];
    an_i64 do_[3], dq[3], dk[3], dv[3];
    int B, H, T, S;
    float scale;
    float keep_scale;    /* 1 / (1 - p): what a kept probability is multiplied by; 1 without dropout */
    an_u32 keep_at_least; /* a probability is kept when its random word >> 8 is at least this: ceil(p * 2^24) */
    an_u32 stream;
    int has_n_keys;      /* forward: n_keys[0] of the S keys are in use */
    int zero;            /* the size is a multiple of 8 in every language */
};

/* attn_hopper.inc, kernels that keep queries (keys = 0) or keys: warpgroups that compute, groups that a multiprocessor holds, pairs of tiles on
 * their way, places for the rows kept; and the shared memory that is asked for at launch: tiles, two numbers a row, barriers, and what is lost
 * to alignment. The choice is measured: bench/cuda/README.md. */
#define AN_HOPPER_TILE           8192
#define AN_HOPPER_GROUPS(keys)   ((keys) ? 2 : 1)
#define AN_HOPPER_THREADS(keys)  (128 * AN_HOPPER_GROUPS(keys) + 128)
#define AN_HOPPER_RESIDENT(keys) ((keys) ? 1 : 3)
#define AN_HOPPER_STAGES(keys)   ((keys) ? 4 : 3)
#define AN_HOPPER_PLACES(keys)   ((keys) ? 2 : 1)
#define AN_HOPPER_SHARED(keys, kept)                                                                                   \
    (((kept) * AN_HOPPER_GROUPS(keys) * AN_HOPPER_PLACES(keys) + 2 * AN_HOPPER_STAGES(keys)) * AN_HOPPER_TILE +        \
     528 * AN_HOPPER_STAGES(keys) + 16 * AN_HOPPER_PLACES(keys) + 1024)

#ifdef AN_KERNEL /* compiled as a kernel, behind base/exact.h */
/* Whether dropout keeps a probability; index as in an_attn_spec. */
AN_FN bool an_kept(AN_ARGS_REF(an_attn_args) a, an_u32 key, an_u64 index)
{
    return (an_philox(key, a.stream, (an_u32)index, (an_u32)(index >> 32)) >> 8) >= a.keep_at_least;
}
#endif
