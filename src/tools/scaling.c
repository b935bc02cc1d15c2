/* scaling.c: see scaling.h. */
#include "tools/scaling.h"
#include "platform/platform.h"
#include <string.h>

/* NVLink is measured on two and four H200 (bench/cuda/README.md). The others are assumed: PCIe is generation 4 with 16
 * lanes through the host, Wi-Fi a good 802.11ac link; what hiding costs there is that of NCCL with two and four thread
 * blocks, which such a link keeps busy. */
const an_link an_links[] = {
    {"nvlink", 263e9, 8e-6, 1, "NVLink 4 through a switch (H100, H200)"},
    {"pcie", 20e9, 15e-6, 0.5, "PCIe 4.0 x16"},
    {"10gbe", 1.1e9, 40e-6, 0.5, "Ethernet of 10 Gbit/s"},
    {"wifi", 40e6, 3e-3, 0.5, "Wi-Fi"},
};

/* Every update waits for the device that took longest: of two and four H200 it is behind their mean by so much. */
static const double slowest = 0.01;
const size_t an_n_links = AN_COUNT(an_links);

const an_link *an_link_find(const char *name)
{
    for (size_t i = 0; i < an_n_links; i++)
        if (strcmp(an_links[i].name, name) == 0) return &an_links[i];
    return NULL;
}

/* The number of buckets into which planner/lower_call.c cuts gradients of so many bytes. */
static double buckets_of(double bytes)
{
    const double each = AN_MIN(AN_MAX(bytes / 16, 1048576.0), 26214400.0);
    return AN_MAX((double)(int64_t)((bytes + each - 1) / each), 1.0);
}

void an_scaling_predict(const an_scaling_work *w, const an_link *link, int64_t devices, an_scaling *out)
{
    const double n = (double)devices, buckets = buckets_of(w->exchanged_bytes),
                 backward_s = w->update_s * 2 / 3 / (double)AN_MAX(w->micros, 1);
    *out = (an_scaling){.update_s = w->update_s, .efficiency = 1};
    if (devices < 2) return;
    out->exchange_s = 2 * (n - 1) / n * w->exchanged_bytes / link->bytes_per_s + buckets * 2 * (n - 1) * link->hop_s;
    const double early = out->exchange_s - out->exchange_s / buckets; /* all buckets but the last */
    const double hidden = w->overlap ? AN_MIN(early, backward_s) : 0;
    out->exposed_s = out->exchange_s - hidden;
    out->update_s = w->update_s * (1 + slowest) + out->exposed_s + link->contention * hidden;
    out->efficiency = w->update_s / out->update_s;
}
