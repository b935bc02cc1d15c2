/* links.c: how the GPUs of this machine reach one another, and the NCCL that would carry their sums: for `doctor`. */
#include "base/base.h"
#include "device/cuda/cuda_internal.h"
#include "platform/network.h"

#include <stdio.h>
#include <string.h>

enum { MOST_GPUS = 16 };

/* How two GPUs exchange. NVLink alone carries atomics between GPUs. */
typedef enum way { NVLINK, PEER, HOST, N_WAYS } way;

static way way_between(const an_cuda_driver *cu, cu_device a, cu_device b)
{
    int access = 0, atomics = 0;
    if (cu->peer_attribute(&access, CU_PEER_ACCESS, a, b) || !access) return HOST;
    return !cu->peer_attribute(&atomics, CU_PEER_ATOMICS, a, b) && atomics ? NVLINK : PEER;
}

static void tell_pairs(const an_cuda_driver *cu, int n, an_self_check_fn *tell, void *user)
{
    static const char *const names[N_WAYS] = {"NVLink", "PCIe, one GPU's memory to the other's",
                                              "PCIe and the host's memory"};
    int count[N_WAYS] = {0};
    char text[256] = "";
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) count[way_between(cu, a, b)]++;
    for (int w = 0; w < N_WAYS; w++)
        if (count[w])
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d by %s", text[0] ? ", " : "", count[w],
                     names[w]);
    tell(user, "pairs of GPUs", text, false);
}

void an_cuda_links(an_self_check_fn *tell, void *user)
{
    an_cuda_driver cu;
    an_nccl nccl;
    an_err err = {0};
    char text[300];
    int n = 0;
    if (an_cuda_driver_find(&err, &cu) != AN_OK || cu.init(0) || cu.device_count(&n) || n < 1) return;
    n = AN_MIN(n, MOST_GPUS);
    for (int i = 0; i < n; i++) {
        char id[32] = "", link[64], what[16];
        if (cu.device_bus_id(id, sizeof id, i)) continue;
        an_pcie_link("", id, link, sizeof link);
        snprintf(what, sizeof what, "GPU %d", i);
        snprintf(text, sizeof text, "%s%s%s", id, link[0] ? ", now " : "", link);
        tell(user, what, text, false);
    }
    if (n > 1) tell_pairs(&cu, n, tell, user);
    const bool found = an_nccl_find(&err, &nccl) == AN_OK;
    if (found)
        snprintf(text, sizeof text, "%d.%d.%d, %.200s", nccl.version / 10000, nccl.version / 100 % 100,
                 nccl.version % 100, nccl.path);
    else
        snprintf(text, sizeof text, "%.299s", err.text);
    tell(user, "NCCL", text, n > 1 && !found);
}
