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

/* attn_hopper.inc (back = 0) and attn_hopper_backward.inc: warpgroups that keep 64 rows each (queries; keys when back) of one tensor, or two;
 * pairs of tiles of the other side that pass by in a ring; places for the rows kept. Shared memory is asked for at launch: tiles, two numbers a
 * row that passes, barriers. The choice is measured: bench/cuda/README.md. */
#define AN_HOPPER_TILE          8192
#define AN_HOPPER_GROUPS(back)  ((back) ? 2 : 4)
#define AN_HOPPER_ROWS(back)    (64 * AN_HOPPER_GROUPS(back))
#define AN_HOPPER_THREADS(back) ((back) ? 512 : 640)
#define AN_HOPPER_STAGES(back)  ((back) ? 4 : 6)
#define AN_HOPPER_SLOTS        2
#define AN_HOPPER_SHARED(back)                                                                                         \
    ((((back) ? 12 + 2 * AN_HOPPER_NEAR : 8) + 2 * AN_HOPPER_STAGES(back)) * AN_HOPPER_TILE +                          \
     ((back) ? 512 : 0) * AN_HOPPER_STAGES(back) + 128)
/* Backward a group takes whole heads (B H are `heads`), at least AN_HOPPER_HEADS or a GPU stays half empty, and there are at most
 * AN_HOPPER_GRID groups. The sums of dq wait meanwhile, those of a head's last AN_HOPPER_NEAR tiles of queries in shared memory, the others in
 * scratch: its words are delta, and from a multiple of 4 on 4096 a tile for each group. */
#define AN_HOPPER_HEADS             64
#define AN_HOPPER_GRID              132
#define AN_HOPPER_NEAR              4
#define AN_HOPPER_SUMS_AT(heads, T) (((an_i64)(heads) * (T) + 3) / 4 * 4)
#define AN_HOPPER_WORDS(heads, T)                                                                                      \
    (AN_HOPPER_SUMS_AT(heads, T) + (an_i64)((heads) < AN_HOPPER_GRID ? (heads) : AN_HOPPER_GRID) * (((T) + 63) / 64) * 4096)

#ifdef AN_KERNEL /* compiled as a kernel, behind base/exact.h */
/* Whether dropout keeps a probability; index as in an_attn_spec. */
AN_FN bool an_dropout_keeps(AN_ARGS_REF(an_attn_args) a, an_u32 key, an_u64 index)
{
    return (an_philox(key, a.stream, (an_u32)index, (an_u32)(index >> 32)) >> 8) >= a.keep_at_least;
}
#endif
