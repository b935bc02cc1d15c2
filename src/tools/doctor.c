/* doctor.c: collects facts about the machine, judges them, and measures the devices. See doctor.h. */
#include "tools/doctor.h"
#include "platform/network.h"
#include "report/machine_monitor.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static void find(an_doctor *d, bool fault, const char *fmt, ...)
{
    if (d->n_findings >= AN_DOCTOR_FINDINGS) return;
    an_doctor_finding *f = &d->finding[d->n_findings++];
    f->fault = fault;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
}

/* ---- findings */

static void judge_machine(an_doctor *d)
{
    const an_system_info *f = &d->os;
    char text[16], other[16];
    if (f->translated[0])
        find(d, false, "this program is translated by %s: a build for this processor itself is faster", f->translated);
    if (f->on_battery == 1) find(d, false, "the machine runs from its battery: figures measured now are low");
    if (f->low_power == 1) find(d, false, "the system saves power: figures measured now are low");
    if (f->thermal[0] && strcmp(f->thermal, "nominal") != 0 && strncmp(f->thermal, "throttled", 9) != 0)
        find(d, false, "the processor is hot (%s): figures measured now are low", f->thermal);
    if (strcmp(f->governor, "powersave") == 0 && strncmp(f->cpu, "Intel", 5) != 0)
        find(d, false, "the frequency governor is powersave: cpupower frequency-set -g performance raises it");
    if (f->cgroup_bytes && f->ram_bytes && f->cgroup_bytes < f->ram_bytes)
        find(d, false, "a control group limits memory to %s of the machine's %s",
             an_bytes_text((double)f->cgroup_bytes, text), an_bytes_text((double)f->ram_bytes, other));
    if (f->limit_address_bytes && f->limit_address_bytes < (uint64_t)1 << 30)
        find(d, true, "ulimit -v is %s: too little for a model; raise it",
             an_bytes_text((double)f->limit_address_bytes, text));
    if (f->limit_files && f->limit_files < 64)
        find(d, true, "ulimit -n is %llu: too few open files for compiling and checkpoints; raise it to 256",
             (unsigned long long)f->limit_files);
    if (f->limit_file_bytes && f->limit_file_bytes < (uint64_t)64 << 20)
        find(d, true, "ulimit -f is %s: checkpoints are larger; raise it",
             an_bytes_text((double)f->limit_file_bytes, text));
}

static void judge_compiler(an_doctor *d)
{
    /* On a Mac /usr/bin/cc exists even when no compiler is installed. */
    if (strncmp(d->os.system, "macOS", 5) == 0 && !d->os.developer[0])
        find(d, true, "the command-line tools are not installed: run xcode-select --install");
    if (!d->cc.path[0])
        find(d, true, "%s", d->cc.why);
    else if (!d->cc.version[0])
        find(d, true, "the C compiler %.300s does not say its version: it may be a broken link; set cc", d->cc.path);
    if (!d->cc.cache_dir[0])
        find(d, true, "%.390s", d->cc.why_cache);
    else if (d->cache_mount.network)
        find(d, false, "the kernel cache %.200s lies on %s: set ANNEAL_CACHE to a local folder", d->cc.cache_dir,
             d->cache_mount.type);
    if (d->here.network) find(d, false, "this folder lies on %s: data and checkpoints here are slow", d->here.type);
}

void an_doctor_judge(an_doctor *d)
{
    int running = 0;
    d->n_findings = 0;
    judge_machine(d);
    judge_compiler(d);
    for (int i = 0; i < d->n_devices; i++) {
        running += d->device[i].runs && d->device[i].available && !d->measured[i].fault[0];
        if (d->measured[i].fault[0]) find(d, true, "%s does not run: %.360s", d->device[i].name, d->measured[i].fault);
    }
    for (int i = 0; i < d->n_links; i++)
        if (d->link[i].fault) find(d, false, "several GPUs cannot train together: %.330s", d->link[i].found);
    if (!running) find(d, true, "no device runs: nothing can be trained here");
}

bool an_doctor_faulty(const an_doctor *d)
{
    for (int i = 0; i < d->n_findings; i++)
        if (d->finding[i].fault) return true;
    return false;
}

/* ---- measuring */

static void hear_isa(void *user, const char *isa, double f32_gflops, double bf16_gflops, bool taken)
{
    an_measured *m = user;
    if (m->n_isas == AN_DOCTOR_SETS) return;
    an_measured_isa *x = &m->isa[m->n_isas++];
    *x = (an_measured_isa){.f32_gflops = f32_gflops, .bf16_gflops = bf16_gflops, .taken = taken};
    snprintf(x->name, sizeof x->name, "%s", isa);
}

static void measure(const an_doctor_options *o, const char *device, an_measured *out)
{
    an_train_config c;
    an_bench_op_result r;
    an_err err = {0};
    an_status status = an_train_config_defaults(&err, an_models[0], NULL, &c);
    an_device_facts facts;
    an_bench_op gemm = {AN_BENCH_MATMUL, AN_F32, 1024, 10, .most_ms = AN_BENCH_MOST_MS};
    if (an_device_find(device, &facts)) gemm.n = facts.bench_side; /* a small GEMM does not fill a GPU */
    snprintf(c.device, sizeof c.device, "%s", device);
    snprintf(c.cc, sizeof c.cc, "%s", o->cc ? o->cc : "");
    snprintf(c.cache_dir, sizeof c.cache_dir, "%s", o->cache_dir ? o->cache_dir : "");
    if (status == AN_OK) status = an_bench_run_op(&err, &c, &gemm, &r);
    if (status == AN_OK) out->gemm_gflops = r.gflops, out->gemm_side = gemm.n = r.n;
    const an_bench_op copy = {AN_BENCH_COPY, AN_F32, 128, 5, .most_ms = AN_BENCH_MOST_MS};
    if (status == AN_OK) status = an_bench_run_op(&err, &c, &copy, &r);
    if (status == AN_OK) out->copy_gbytes = r.gbytes;
    gemm.dtype = AN_BF16;
    if (status == AN_OK) status = an_bench_run_op(&err, &c, &gemm, &r);
    if (status == AN_OK) out->gemm_bf16_gflops = r.gflops;
    if (status == AN_OK) out->driver_bytes = r.driver_bytes;
    if (status == AN_OK && r.driver_bytes) out->device_bytes = r.device_bytes;
    if (status == AN_OK) an_isa_rates_of(device, hear_isa, out);
    if (status != AN_OK) snprintf(out->fault, sizeof out->fault, "%.500s", err.text);
}

/* Records what the device, or the network, says of a link (an_device_links). */
static void hear_link(void *user, const char *what, const char *found, bool fault)
{
    an_doctor *d = user;
    if (d->n_links == AN_DOCTOR_LINKS) return;
    an_doctor_link *l = &d->link[d->n_links++];
    l->fault = fault;
    snprintf(l->what, sizeof l->what, "%s", what);
    snprintf(l->found, sizeof l->found, "%s", found);
}

static void examine_links(an_doctor *d)
{
    char cards[300];
    for (int i = 0; i < d->n_devices; i++)
        if (d->device[i].runs && d->device[i].available) an_device_links(d->device[i].name, hear_link, d);
    an_network_links("", cards, sizeof cards);
    hear_link(d, "network", cards[0] ? cards : "no card that is up", false);
}

an_status an_doctor_examine(an_err *err, const an_doctor_options *o, an_doctor *out)
{
    memset(out, 0, sizeof *out);
    an_monitor_facts(&out->os);
    an_compiler_facts_read(o->cc, o->cache_dir, &out->cc);
    if (out->cc.cache_dir[0]) an_mount_info_read(out->cc.cache_dir, &out->cache_mount);
    an_mount_info_read(".", &out->here);
    out->n_devices = an_devices(out->device, AN_DOCTOR_DEVICES);
    if (out->n_devices > AN_DOCTOR_DEVICES) out->n_devices = AN_DOCTOR_DEVICES;
    bool known = !o->device;
    for (int i = 0; i < out->n_devices; i++) known |= o->device && strcmp(out->device[i].name, o->device) == 0;
    if (!known) return an_fail(err, AN_E_USAGE, "there is no device \"%.60s\"; anneal doctor lists them", o->device);
    for (int i = 0; o->measure && i < out->n_devices; i++) {
        const an_device_facts *d = &out->device[i];
        if (o->device && strcmp(o->device, d->name) != 0) continue;
        if (d->runs && d->available)
            measure(o, d->name, &out->measured[i]);
        else if (o->device) /* requested by name: then it is a fault that it does not run */
            memcpy(out->measured[i].fault, d->reason, sizeof d->reason);
    }
    examine_links(out);
    an_doctor_judge(out);
    return AN_OK;
}
