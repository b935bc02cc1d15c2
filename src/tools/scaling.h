/* scaling.h: how fast several devices with the same work each would train, from the time of one and the bytes that they
 * exchange.
 *
 * Owns:      the model of an exchange, and what links are assumed to carry.
 * Does not:  measure, or know topologies: all devices form one ring, whose slowest link counts. */
#ifndef AN_TOOLS_SCALING_H
#define AN_TOOLS_SCALING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a ring over such links carries in practice, and what a hop costs. */
typedef struct an_link {
    const char *name;
    double bytes_per_s, hop_s;
    double contention; /* what the backward pass is longer by, of the time that it hides: both need multiprocessors */
    const char *what;
} an_link;
extern const an_link an_links[];
extern const size_t an_n_links;
const an_link *an_link_find(const char *name); /* NULL: there is none */

/* An update of one device. */
typedef struct an_scaling_work {
    double update_s;        /* alone */
    double exchanged_bytes; /* its gradients */
    bool overlap;           /* the exchange runs beside the backward pass, that of the last micro-batch */
    int64_t micros;         /* of an update; 0 is 1 */
} an_scaling_work;

typedef struct an_scaling {
    double exchange_s, exposed_s, update_s; /* exposed: of the exchange, what the backward pass does not hide */
    double efficiency;                      /* throughput over that of so many times one device */
} an_scaling;

/* A ring moves 2 (n - 1) / n of the bytes over each link, in 2 (n - 1) hops a bucket (Patarasuk and Yuan, "Bandwidth
 * optimal all-reduce algorithms for clusters of workstations", 2009). Of an update two thirds are backward passes; that
 * of the last micro-batch may hide all buckets but the last, and is longer by a share of what it hides. Devices differ, and
 * each update waits for the slowest. */
void an_scaling_predict(const an_scaling_work *w, const an_link *link, int64_t devices, an_scaling *out);

#endif
