/* attn_args.h: run-time arguments of the attention kernels, and the layout of attn_hopper*.inc. The dropout mask: dropout_mask.h.
 * Kinds, head size and tile sizes are compiled in; extents and strides are not, so that one kernel serves every length.
 * Strides are in elements, of (b, h, t), as in an_attn_spec. The layout is the same in C, CUDA and MSL: 8-byte members come first. */
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

/* attn_hopper.inc (back = 0) and attn_hopper_backward.inc (back = 1):
 *     GROUPS   warpgroups that hold 64 rows each: queries forward (Q), keys backward (K and V)
 *     STAGES   of the ring through which tiles of the other side are streamed: K and V forward, Q and dO backward
 *     SLOTS    buffers for the held rows, so that the next block's are copied while this one is worked on
 * Dynamic shared memory: tiles, two f32 (lse, delta) for each streamed row backward, barriers. Measured choice: bench/cuda/README.md. */
#define AN_HOPPER_TILE          8192
#define AN_HOPPER_GROUPS(back)  ((back) ? 2 : 4)
#define AN_HOPPER_ROWS(back)    (64 * AN_HOPPER_GROUPS(back))
#define AN_HOPPER_THREADS(back) ((back) ? 512 : 640)
#define AN_HOPPER_STAGES(back)  ((back) ? 4 : 6)
#define AN_HOPPER_SLOTS        2
#define AN_HOPPER_SHARED(back)                                                                                         \
    ((((back) ? 12 + 2 * AN_HOPPER_NEAR : 8) + 2 * AN_HOPPER_STAGES(back)) * AN_HOPPER_TILE +                          \
     ((back) ? 512 : 0) * AN_HOPPER_STAGES(back) + 128)
/* Backward, a thread block takes whole heads (`heads` = B H). Fewer than AN_HOPPER_HEADS would leave the GPU half empty; there are at most
 * AN_HOPPER_GRID blocks. Partial sums of dq are kept between blocks of keys: those of a head's last AN_HOPPER_NEAR query tiles in shared
 * memory, the others in scratch, which holds delta and then, aligned to 4 words, 4096 words a query tile for each thread block. */
#define AN_HOPPER_HEADS             64
#define AN_HOPPER_GRID              132
#define AN_HOPPER_NEAR              4
#define AN_HOPPER_SUMS_AT(heads, T) (((an_i64)(heads) * (T) + 3) / 4 * 4)
#define AN_HOPPER_WORDS(heads, T)                                                                                      \
    (AN_HOPPER_SUMS_AT(heads, T) + (an_i64)((heads) < AN_HOPPER_GRID ? (heads) : AN_HOPPER_GRID) * (((T) + 63) / 64) * 4096)
