/* choose_isa.c: the instruction set that a device takes, by what the sets reach on this processor, not by their names.
 *
 * The newest instructions need not be the fastest: the dot product of bfloat16 has twice the rate of float32's multiply-adds on an AMD
 * Zen 4 and half of it on an Intel Sapphire Rapids. What is computed does not depend on the choice, but for products of bfloat16 on
 * tile registers, which add in an order of their own.
 * Invariant: one answer a process. Rates that are near each other do not decide, the order of an_cpu_kernels_all does: two runs on one
 *            processor take one set. */
#include "device/cpu/cpu_internal.h"

#include <stdatomic.h>
#include <string.h>

enum { SETS = 16 };
static const double NEAR = 0.75; /* of the fastest rate; noise is below it, and what is slower by name is at half */

int an_isa_choose(const double *gflops, int n)
{
    double most = 0;
    int i = 0;
    for (int j = 0; j < n; j++) most = AN_MAX(most, gflops[j]);
    while (i < n - 1 && !(gflops[i] >= NEAR * most)) i++;
    return i;
}

/* The sets that this processor runs in hardware, in order. */
static int sets_here(const an_cpu_kernels **out)
{
    int n, found = 0;
    const an_cpu_kernels *const *all = an_cpu_kernels_all(&n);
    for (int i = 0; i < n && found < SETS; i++)
        if (!(all[i]->tiles && !all[i]->bf16_dot) && an_cpu_kernels_find(all[i]->isa)) out[found++] = all[i];
    return found;
}

/* The one to take of those with tile registers (`tiles`), or without, or (`any`) of all; NULL: there is none. */
static const an_cpu_kernels *fastest(bool tiles, bool any)
{
    const an_cpu_kernels *set[SETS], *of[SETS];
    double gflops[SETS] = {0};
    int n = 0;
    for (int i = 0, all = sets_here(set); i < all; i++)
        if (any || set[i]->tiles == tiles) of[n++] = set[i];
    if (!n) return NULL;
    an_err quiet = {0};
    an_pool *one;
    if (!of[0]->bf16_dot || an_pool_open(&quiet, 1, &one) != AN_OK) return of[0];
    for (int round = 0; round < 2; round++) /* the first wakes the units */
        for (int i = 0; i < n; i++)
            if (of[i]->bf16_dot || i == 0 || of[i - 1]->bf16_dot) /* narrower ones below it are not faster */
                gflops[i] = AN_MAX(gflops[i], of[i]->fma_peak(one, AN_BF16, 0));
    an_pool_close(one);
    return of[an_isa_choose(gflops, n)];
}

const an_cpu_kernels *an_isa_taken(void)
{
    static _Atomic(const an_cpu_kernels *) taken;
    const an_cpu_kernels *t = atomic_load(&taken), *none = NULL;
    if (t) return t;
    t = fastest(false, true);
    return atomic_compare_exchange_strong(&taken, &none, t) ? t : none;
}

const char *an_isa_as(const char *began)
{
    int n;
    const an_cpu_kernels *const *all = an_cpu_kernels_all(&n), *same;
    for (int i = 0; i < n; i++) {
        if (strcmp(all[i]->isa, began) != 0) continue;
        if (all[i]->tiles == an_isa_taken()->tiles) return NULL;
        same = fastest(all[i]->tiles, false);
        return same ? same->isa : "";
    }
    return NULL;
}

void an_isa_rates(an_isa_rate_fn *tell, void *user)
{
    const an_cpu_kernels *set[SETS];
    const int n = sets_here(set);
    an_err quiet = {0};
    an_pool *one;
    if (an_pool_open(&quiet, 1, &one) != AN_OK) return;
    for (int i = 0; i < n; i++) {
        const double f32 = set[i]->fma_peak(one, AN_F32, 0.003), bf16 = set[i]->fma_peak(one, AN_BF16, 0.003);
        tell(user, set[i]->isa, f32, bf16, set[i] == an_isa_taken());
    }
    an_pool_close(one);
}
