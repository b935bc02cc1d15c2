/* puzzle_impl.h: what puzzle_set.c (files, reading) and puzzle_order.c (drawing) share. */
#ifndef AN_IO_DATA_PUZZLE_IMPL_H
#define AN_IO_DATA_PUZZLE_IMPL_H

#include "io/data/puzzle_set.h"
#include "io/formats/npy.h"
#include <pthread.h>

/* The files of one set in a directory. */
typedef struct an_puzzle_part {
    char path[AN_PUZZLE_PATH_BYTES]; /* DIR/SPLIT/SET: the files' names begin so */
    an_npy inputs, labels;           /* [examples,seq_len] */
    int32_t *puzzle_at;              /* [puzzles+1]: first example; the last is `examples` */
    int32_t *group_at;               /* [groups+1]: first puzzle */
    int32_t *identifier;             /* [puzzles] */
    int64_t examples, puzzles, groups;
    int64_t first; /* number of its first example in the whole set */
    bool singles;  /* every puzzle has one example */
    int64_t each;  /* examples of every puzzle; 0: they have different numbers of them */
} an_puzzle_part;

/* Where the batch of an update begins: at draw `draw` of pass `pass`. */
typedef struct an_puzzle_place {
    uint64_t update, pass;
    int64_t draw;
} an_puzzle_place;

struct an_puzzle_set {
    char (*dir)[AN_PUZZLE_PATH_BYTES];
    int n_dirs;
    an_puzzle_part *part;
    int32_t n_parts, cap;
    an_puzzle_meta meta;
    int64_t examples, groups;

    /* Places that are remembered for the order that was asked for last: the newest, and about one in 64 updates, so that a
     * walk need not begin at the first update. Only speed depends on them. */
    pthread_mutex_t lock;
    an_puzzle_order walked;
    an_puzzle_place recent, *place; /* ascending */
    int32_t n_places, cap_places;
};

#endif
