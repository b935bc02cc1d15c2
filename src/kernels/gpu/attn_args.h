/* attn_args.h: run-time arguments of the attention kernels, and the layout of attn_hopper*.inc. The dropout mask: dropout_mask.h.
 * Kinds, head size and tile sizes are compiled in; extents and strides are not, so that one kernel serves every length.
 * Strides are in elements, of (b, h, t), as in an_attn_spec. The layout is the same in C, CUDA and MSL: 8-byte members come first. */
struct an_attn_args {
    an_i64 q[3], k[3], v[3], o[3];
    an_i64 do_[3], dq[3], dk[3], dv[3];
    an_i64 mask[4];      /* of (b, h, i, j) */
    int B, H, T, S;
    float scale;
    float keep_scale;    /* an_rng_keep_scale_16(p): what a kept probability is multiplied by; 1 without dropout */
    an_u32 keep_at_least; /* a probability is kept when its 16 random bits are at least this: p * 2^16, rounded up (base/rng.h) */
    an_u32 stream;
    int has_n_keys;      /* forward: n_keys[0] of the S keys are in use */
    int window;          /* with AN_SLIDING: keys that a query sees, up to the last one */
};

/* Grouped heads: head h of q reads head h / AN_GROUP of k and v, and dk and dv are sums over AN_GROUP heads. The bodies of short
 * sequences and of tf32 know none. */
#ifndef AN_GROUP
#define AN_GROUP 1
#endif

/* attn_tf32.inc: whether a thread block makes dq, dk and dv of a whole head, five GEMMs instead of seven: where there are heads enough for
 * two on each of 132 multiprocessors, and key 0 is seen by all queries. Its dynamic shared memory: 64 keys, two pairs of tiles of `cols`
 * queries, their lse and delta, ds. */
#define AN_TF32_WHOLE(heads, T, S, d)    ((heads) >= 264 && (S) >= (T) && ((d) == 32 || (d) == 64))
#define AN_TF32_WHOLE_SHARED(d, cols) (4 * ((64 + 4 * (cols)) * ((d) + 4) + 4 * (cols) + 68 * (cols)))

/* attn_tf32_hopper.inc, for heads of up to 64: columns of a tile, and its dynamic shared memory: tiles of q, k and v^T; or k, k^T and v of
 * 128 keys, q, q^T, do, do^T and ds of 32 queries, their lse and delta. The gradient where heads enough fill the GPU, and key 0 is seen by all
 * queries. */
#define AN_TF32_HOPPER_MOST            64
#define AN_TF32_HOPPER_COLUMNS(d)      ((d) <= 32 ? 32 : 64)
#define AN_TF32_HOPPER_SHARED(grad, d) ((grad) ? 1536 * AN_TF32_HOPPER_COLUMNS(d) + 49408 : 512 * AN_TF32_HOPPER_COLUMNS(d))
#define AN_TF32_HOPPER_BACK(heads, T, S) ((heads) >= 132 && (S) >= (T))
#define AN_TF32_HOPPER_BACK_THREADS    256

/* The passes of attn_hopper*.inc, for heads of `c` chunks of 64 columns (padded with zeros in shared memory), 1 to 4:
 *     AN_FORWARD_PASS  holds queries, streams K and V
 *     AN_SHORT_PASS    the same for many heads of one chunk and up to 128 queries: two heads at a time, two warpgroups each
 *     AN_WHOLE_PASS    dq, dk, dv, five GEMMs: holds K and V, streams Q and dO; a thread block takes whole heads
 *     AN_SHARED_PASS   the same, but thread blocks share a head, and add to its dq in a fixed order; of one chunk or two
 *     AN_DKV_PASS      dk and dv: holds K and V, streams Q and dO          four GEMMs
 *     AN_DQ_PASS       dq: holds Q and dO, streams K and V                 three GEMMs
 *
 *     WIDE     heads of more than 128 columns: their tiles fill the shared memory, and the sums of one result a warpgroup's registers. So
 *              the ring streams single tiles instead of pairs, and dk and dv of the same 64 keys are a warpgroup each, five GEMMs
 *     GROUPS   of 64 rows that are held at a time
 *     WORKERS  warpgroups that read them
 *     THIRD    and one that makes dq alone: beside the sums of two chunks it has no registers, and the workers make dq
 *     STAGES   of the ring through which tiles of the other side are streamed
 *     SLOTS    buffers for the held rows, so that, where there are two, the next block's are copied while this one is worked on
 * Dynamic shared memory: tiles, AN_HOPPER_NUMBERS for each tile of streamed queries, barriers. Measured choice: bench/cuda/README.md. */
#define AN_FORWARD_PASS        0
#define AN_WHOLE_PASS          1
#define AN_SHARED_PASS         2
#define AN_DKV_PASS            3
#define AN_DQ_PASS             4
#define AN_SHORT_PASS          5
#define AN_HOPPER_FORWARD(pass) ((pass) == AN_FORWARD_PASS || (pass) == AN_SHORT_PASS)
#define AN_HOPPER_FORWARD_OF(heads, T, d)                                                                              \
    ((T) <= 128 && AN_HOPPER_CHUNKS(d) == 1 && (heads) > 2 * AN_HOPPER_GRID ? AN_SHORT_PASS : AN_FORWARD_PASS)
#define AN_HOPPER_MOST_COLUMNS 256
#define AN_HOPPER_TILE         8192 /* bytes: 64 rows of 64 columns */
#define AN_HOPPER_CHUNKS(d)    (((d) + 63) / 64)
#define AN_HOPPER_WIDE(c)      ((c) > 2)
#define AN_HOPPER_FIVE(pass)   ((pass) == AN_WHOLE_PASS || (pass) == AN_SHARED_PASS)
#define AN_HOPPER_KEYS(pass)   (AN_HOPPER_FIVE(pass) || (pass) == AN_DKV_PASS) /* holds keys, streams queries */
#define AN_HOPPER_APART(pass, c) (AN_HOPPER_WIDE(c) && (pass) == AN_DKV_PASS) /* dk and dv by a warpgroup each */
#define AN_HOPPER_GROUPS(pass, c)                                                                                      \
    (AN_HOPPER_WIDE(c) ? ((pass) == AN_DKV_PASS ? 1 : 2)                                                               \
                       : (AN_HOPPER_FORWARD(pass) ? ((c) == 1 ? 4 : 3) : (pass) == AN_DQ_PASS && (c) == 1 ? 3 : 2))
#define AN_HOPPER_WORKERS(pass, c) (AN_HOPPER_GROUPS(pass, c) + AN_HOPPER_APART(pass, c))
#define AN_HOPPER_ROWS(pass, c)    (64 * AN_HOPPER_GROUPS(pass, c))
#define AN_HOPPER_THIRD(pass, c) (AN_HOPPER_FIVE(pass) && (c) == 1)
#define AN_HOPPER_THREADS(pass, c) (128 * (AN_HOPPER_WORKERS(pass, c) + 1 + AN_HOPPER_THIRD(pass, c)))
#define AN_HOPPER_STAGES(pass, c)                                                                                      \
    (AN_HOPPER_WIDE(c) ? ((c) == 4 && (pass) == AN_DQ_PASS ? 3 : 5)                                                    \
     : (c) == 1        ? (AN_HOPPER_FIVE(pass) ? 4 : 6)                                                                \
                       : ((pass) == AN_FORWARD_PASS ? 4 : AN_HOPPER_FIVE(pass) ? 2 : 3))
#define AN_HOPPER_PER_STAGE(c)  (AN_HOPPER_WIDE(c) ? 1 : 2) /* tiles */
#define AN_HOPPER_SLOTS(pass, c)                                                                                       \
    ((c) == 4 || ((c) == 3 && (pass) == AN_DQ_PASS) || ((c) == 2 && AN_HOPPER_FIVE(pass)) ? 1 : 2)
#define AN_HOPPER_HELD(pass)    (AN_HOPPER_FORWARD(pass) ? 1 : 2) /* tensors */
#define AN_HOPPER_SHARED(pass, c)                                                                                      \
    ((AN_HOPPER_SLOTS(pass, c) * AN_HOPPER_HELD(pass) * AN_HOPPER_GROUPS(pass, c) +                                    \
      AN_HOPPER_PER_STAGE(c) * AN_HOPPER_STAGES(pass, c)) * (c) * AN_HOPPER_TILE +                                     \
     AN_HOPPER_FIVE(pass) * (4 + 2 * (c) * AN_HOPPER_NEAR(c)) * AN_HOPPER_TILE +                                       \
     AN_HOPPER_KEYS(pass) * AN_HOPPER_NUMBERS(pass, c) * AN_HOPPER_STAGES(pass, c) + 256)
/* A streamed tile of queries has two numbers a row: lse and delta; three with a mask, whose maxima and logarithms are apart: where there is room. */
#define AN_HOPPER_NUMBERS(pass, c) (AN_HOPPER_FIVE(pass) || (c) > AN_HOPPER_MOST_BIASED ? 512 : 768)
#define AN_HOPPER_MOST_BIASED      3 /* chunks of a head with a mask */
/* Which of the backward passes, without a mask, a window and grouped heads (with them AN_DKV_PASS and AN_DQ_PASS, which own what they write). Heads of 65 to 128 in short sequences spend too long on filling and emptying the one place of their keys, wider ones
 * have no registers for five GEMMs. Where thread blocks take whole heads, the last round of AN_HOPPER_GRID may be nearly empty; where they share
 * them, it is full, but a head takes up to 1.2 times as long. */
#define AN_HOPPER_GRID      132 /* multiprocessors of an H100 SXM and of an H200 */
#define AN_HOPPER_ROUNDS(h) (((h) + AN_HOPPER_GRID - 1) / AN_HOPPER_GRID)
#define AN_HOPPER_BACK(heads, T, d)                                                                                    \
    (AN_HOPPER_CHUNKS(d) > 2                                         ? AN_DKV_PASS                                     \
     : AN_HOPPER_CHUNKS(d) == 2                                      ? ((T) < 640 ? AN_DKV_PASS : AN_SHARED_PASS)      \
     : 5 * (heads) < 4 * AN_HOPPER_GRID * AN_HOPPER_ROUNDS(heads)    ? AN_SHARED_PASS                                  \
                                                                     : AN_WHOLE_PASS)
/* Scratch of the backward passes, in words: delta, a number a query; then, for those with five GEMMs, aligned to 4 words, sums of dq, 4096
 * words a chunk of a tile of 64 queries, of every head, or of every thread block of AN_WHOLE_PASS, of which there are at most AN_HOPPER_GRID (sums of a
 * head's last AN_HOPPER_NEAR query tiles are in shared memory); then for AN_SHARED_PASS the next block of keys to take, and how many have
 * been added to each tile of queries. */
#define AN_HOPPER_NEAR(c)           ((c) == 1 ? 4 : 2)
#define AN_HOPPER_QUERY_TILES(T)    (((T) + 63) / 64)
#define AN_HOPPER_SUMS_AT(heads, T) (((an_i64)(heads) * (T) + 3) / 4 * 4)
#define AN_HOPPER_COUNTS_AT(heads, T, c)                                                                               \
    (AN_HOPPER_SUMS_AT(heads, T) + (an_i64)(heads) * AN_HOPPER_QUERY_TILES(T) * 4096 * (c))
#define AN_HOPPER_COUNTS(heads, T) ((an_i64)(heads) * AN_HOPPER_QUERY_TILES(T) + 1)
#define AN_HOPPER_WORDS(pass, heads, T, c)                                                                             \
    ((pass) == AN_SHARED_PASS  ? AN_HOPPER_COUNTS_AT(heads, T, c) + AN_HOPPER_COUNTS(heads, T)                         \
     : (pass) == AN_WHOLE_PASS ? AN_HOPPER_SUMS_AT(heads, T) + (an_i64)((heads) < AN_HOPPER_GRID ? (heads) : AN_HOPPER_GRID) * \
                                                                   AN_HOPPER_QUERY_TILES(T) * 4096                     \
                               : (an_i64)(heads) * (T))
/* Tensors whose rows are not aligned are packed (attn_hopper.inc): elements before tensor 0 to 3 (q, k, v, do; 4: all) of scratch that begins
 * after those words, aligned to 4. */
#define AN_HOPPER_PITCH(d) (((d) + 7) / 8 * 8)
#define AN_HOPPER_PACKED_AT(a, d, tensor, group)                                                                       \
    (((an_i64)((tensor) > 0) + ((tensor) > 3)) * (a).B * (a).H * (a).T * AN_HOPPER_PITCH(d) +                          \
     (an_i64)((tensor) > 2 ? 2 : (tensor) > 1 ? 1 : 0) * (a).B * ((a).H / (group)) * (a).S * AN_HOPPER_PITCH(d))
/* Dropout's bits (attn_mask in attn_hopper.inc): 1 an element, set where it is kept, in tiles of 64 queries x 64 keys of AN_MASK_WORDS words. In
 * the order of the passes that hold queries: tiles [B, H, queries, keys], word 64 s + i of a tile: keys [32 s, 32 s + 32) of query i. For those that
 * hold keys: queries and keys change places. The two kernels of heads wider than 64 have both, one behind the other. */
#define AN_MASK_WORDS 128
#define AN_MASK_TILES 8 /* of a block of attn_mask */
#define AN_MASK_SIDE(n)        (((n) + 63) / 64)
#define AN_MASK_BY_QUERY(pass) (!AN_HOPPER_FIVE(pass))
#define AN_MASK_ONE(heads, T, S) ((an_i64)(heads) * AN_MASK_SIDE(T) * AN_MASK_SIDE(S) * AN_MASK_WORDS)
#define AN_MASK_KEYS_AT(pass, heads, T, S) (AN_MASK_BY_QUERY(pass) ? AN_MASK_ONE(heads, T, S) : 0)
#define AN_MASK_BYTES(pass, heads, T, S)                                                                               \
    (4 * AN_MASK_ONE(heads, T, S) * (AN_MASK_BY_QUERY(pass) + AN_HOPPER_KEYS(pass)))
/* attn_short.inc: `rows` is T, which is S, rounded up to 16; heads have 64 columns. Dynamic shared memory: tiles of q, k and v; backward of
 * q, do, k, v, one of [rows, rows] and one that results are written through. */
#define AN_SHORT_MOST    112 /* more have too few registers for the gradient */
#define AN_SHORT_COLUMNS 64
#define AN_SHORT_THREADS(rows) (2 * (rows))
#define AN_SHORT_SHARED(grad, rows)                                                                                    \
    (2 * (rows) * ((grad) ? 5 * (AN_SHORT_COLUMNS + 8) + (rows) + 8 : 3 * (AN_SHORT_COLUMNS + 8)))
