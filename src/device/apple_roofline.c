/* apple_roofline.c: see apple_roofline.h.
 *
 *     seconds of a launch = max(flops / (share * peak flops), bytes / (share * peak bandwidth)) + dispatch
 *
 * The shares are what others have measured of the public peaks: see the constants. The sum is not checked on a Mac. */
#include "device/apple_roofline.h"

/* GPU cores, memory bandwidth and FP32 rate: Apple's technical specifications; rates as cores * 128 FMA * clock, with
 * the clocks of github.com/philipturner/metal-benchmarks. Where a chip is sold with two GPUs, the larger one. */
static const struct {
    const char *name;
    int cores;
    double gb_s, tflops;
} chips[] = {
    {"M1", 8, 68, 2.6},   {"M1 Pro", 16, 200, 5.3}, {"M1 Max", 32, 400, 10.6}, {"M1 Ultra", 64, 800, 21.2},
    {"M2", 10, 100, 3.6}, {"M2 Pro", 19, 200, 6.8}, {"M2 Max", 38, 400, 13.6}, {"M2 Ultra", 76, 800, 27.2},
    {"M3", 10, 102, 3.5}, {"M3 Pro", 18, 154, 6.4}, {"M3 Max", 40, 410, 14.3}, {"M3 Ultra", 80, 819, 28.6},
    {"M4", 10, 120, 3.8}, {"M4 Pro", 20, 273, 9.0}, {"M4 Max", 40, 546, 18},
};

#define GEMM_SHARE      0.60 /* of the FP32 rate: staged 8x8 matrices; others' best kernels reach 0.8 to 0.9 */
#define ATTENTION_SHARE 0.40
#define SCALAR_SHARE    0.25   /* loop kernels: few of their operations are multiply-adds */
#define BANDWIDTH_SHARE 0.85   /* STREAM on the GPU: arXiv 2502.05317 */
#define LAUNCH_SECONDS  5.2e-6 /* a dispatch that depends on the one before: reported by ferrox, issue 149 */

static double launch_seconds(const an_plan *p, int32_t step, double flops, double bytes)
{
    const an_plan_step *st = &p->step[step];
    const an_kernel_kind kind = p->kernel[st->kernel].kind;
    const double share = kind == AN_KERNEL_GEMM                                  ? GEMM_SHARE
                         : kind == AN_KERNEL_ATTN || kind == AN_KERNEL_ATTN_GRAD ? ATTENTION_SHARE
                                                                                 : SCALAR_SHARE;
    const double work = (double)st->flops / (share * flops), traffic = (double)st->bytes / (BANDWIDTH_SHARE * bytes);
    return AN_MAX(work, traffic) + LAUNCH_SECONDS;
}

static double step_seconds(const an_plan *p, double flops, double bytes)
{
    double seconds = 0;
    for (int32_t s = 0; s < p->n_steps; s++)
        if (!p->step[s].fallback) seconds += launch_seconds(p, s, flops, bytes);
    return seconds;
}

double an_apple_roofline_slowest(const an_plan *p, int32_t step)
{
    return launch_seconds(p, step, chips[0].tflops * 1e12, chips[0].gb_s * 1e9);
}

void an_apple_roofline_text(const an_plan *p, an_text *out)
{
    an_text_puts(out, "ESTIMATES of a step, from public figures; nothing here was measured on a Mac.\n"
                      "chip      GPU cores   GB/s  TFLOP/s   ms a step   steps an hour\n");
    for (size_t i = 0; i < AN_COUNT(chips); i++) {
        const double s = step_seconds(p, chips[i].tflops * 1e12, chips[i].gb_s * 1e9);
        an_text_printf(out, "%-9s %9d %6.0f %8.1f %11.*f %15.0f\n", chips[i].name, chips[i].cores, chips[i].gb_s,
                       chips[i].tflops, s < 0.1 ? 1 : 0, 1e3 * s, 3600 / s);
    }
    if (p->bill.fallbacks)
        an_text_printf(
            out, "Not in these times: the %d launches that the CPU runs, and the GPU's waits for them (--trace).\n",
            p->bill.fallbacks);
    an_text_printf(
        out,
        "Cores, GB/s: Apple's specifications, the larger GPU of each chip. TFLOP/s: cores x 128 multiply-adds "
        "x clock.\nReached of them: GEMM %.0f %%, attention %.0f %%, the rest %.0f %%, memory %.0f %%; a "
        "launch costs %.1f us.\n",
        100 * GEMM_SHARE, 100 * ATTENTION_SHARE, 100 * SCALAR_SHARE, 100 * BANDWIDTH_SHARE, 1e6 * LAUNCH_SECONDS);
}
