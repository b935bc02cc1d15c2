/* cmd_doctor.c: prints what tools/doctor.h finds about this machine. Exit code 2: there is a fault. */
#include "cli/cli.h"
#include "cli/ranks.h"
#include "tools/doctor.h"
#include "tools/exchange_curve.h"
#include <anneal_tools.h>
#include <string.h>

typedef struct doctor_values {
    char device[AN_CONFIG_TEXT_BYTES], cc[AN_CONFIG_TEXT_BYTES], cache_dir[AN_CONFIG_TEXT_BYTES];
    bool measure, clean_cache;
    an_rank_values ranks;
} doctor_values;

#define AT(name) offsetof(doctor_values, name)
static const an_config_field fields[] = {
    {"device", AN_CONFIG_TEXT, AT(device), "", 0, 0, NULL, "the device to measure; empty: each that runs"},
    {"measure", AN_CONFIG_BOOL, AT(measure), "true", 0, 0, NULL, "run a matrix product and a copy on it"},
    {"cc", AN_CONFIG_TEXT, AT(cc), "", 0, 0, NULL, "C compiler to examine; empty: the one training would take"},
    {"clean_cache", AN_CONFIG_BOOL, AT(clean_cache), "false", 0, 0, NULL,
     "remove the compiled kernels, and do nothing else; they are compiled again when needed"},
    {"cache_dir", AN_CONFIG_TEXT, AT(cache_dir), "", 0, 0, NULL, "kernel cache to examine; empty: training's"},
    {"ranks", AN_CONFIG_INT, AT(ranks.ranks), "0", 0, AN_COMM_RANKS, NULL,
     "measure how fast so many processes add their gradients, and do nothing else; so do processes that mpirun starts"},
    {"devices", AN_CONFIG_TEXT, AT(ranks.devices), "", 0, 0, NULL,
     "measure how fast GPUs add, a process each: how many (4), which (0,2), or auto: all that are there"},
    {"transport", AN_CONFIG_TEXT, AT(ranks.transport), "auto", 0, 0, "auto|shared_memory|mpi",
     "between processes that mpirun or srun started; auto: MPI where they are on several hosts"},
};
const an_config an_doctor_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* ---- for people: a label, then words that wrap at 80 columns */

static void put_row(an_text *out, const char *label, const char *words)
{
    enum { LABEL = 12, WIDTH = 80 };
    size_t column = LABEL;
    an_text_printf(out, "%-*s", LABEL, label);
    for (const char *w = words; *w;) {
        const size_t n = strcspn(w, " ");
        if (column > LABEL && column + 1 + n > WIDTH) {
            an_text_printf(out, "\n%*s", LABEL, "");
            column = LABEL;
        } else if (column > LABEL) {
            an_text_puts(out, " ");
            column++;
        }
        an_text_putn(out, w, n);
        column += n;
        w += n;
        while (*w == ' ') w++;
    }
    an_text_puts(out, "\n");
}

/* Prints a row and clears the words. */
static void end_row(an_text *out, const char *label, an_text *words)
{
    if (words->len) put_row(out, label, words->data);
    out->failed |= words->failed;
    an_text_clear(words);
}

static const char *bytes(uint64_t n, char text[16])
{
    return n ? an_bytes_text((double)n, text) : "none";
}

static void print_machine(an_text *out, an_text *w, const an_system_info *f)
{
    char a[16], b[16], c[16];
    an_text_printf(w, "%s%s%s %s", f->system, f->system[0] ? ", " : "", f->kernel, f->machine);
    if (f->hypervisor[0]) an_text_printf(w, ", a virtual machine (%s)", f->hypervisor);
    if (f->container[0]) an_text_printf(w, ", in a container (%s)", f->container);
    if (f->translated[0]) an_text_printf(w, ", translated by %s", f->translated);
    if (!f->container[0]) an_text_puts(w, ", no container");
    if (!f->translated[0]) an_text_puts(w, ", native");
    end_row(out, "system", w);
    an_text_printf(w, "%s, %d cores", f->cpu[0] ? f->cpu : "unknown", f->cores);
    if (f->cores_slow) an_text_printf(w, " (%d fast, %d slow)", f->cores_fast, f->cores_slow);
    an_text_printf(w, ", %d threads, %d usable", f->threads, f->cores_usable);
    if (f->cgroup_cores > 0) an_text_printf(w, " (control group: %.3g)", f->cgroup_cores);
    if (f->governor[0]) an_text_printf(w, "; governor %s", f->governor);
    if (f->thermal[0]) an_text_printf(w, "; temperature %s", f->thermal);
    end_row(out, "processor", w);
    an_text_puts(w, f->features[0] ? f->features : "no vector instructions known");
    end_row(out, "", w);
    an_text_printf(w, "caches L1 %s, L2 %s, L3 %s", bytes(f->l1d_bytes, a), bytes(f->l2_bytes, b),
                   bytes(f->l3_bytes, c));
    end_row(out, "", w);
    an_text_printf(w, "%s, %s available; swap %s", bytes(f->ram_bytes, a), bytes(f->free_bytes, b),
                   bytes(f->swap_bytes, c));
    an_text_printf(w, "; control group limit %s", bytes(f->cgroup_bytes, a));
    end_row(out, "memory", w);
    an_text_printf(w, "ulimit -v %s, -d %s, -l %s,", bytes(f->limit_address_bytes, a), bytes(f->limit_data_bytes, b),
                   bytes(f->limit_lock_bytes, c));
    an_text_printf(w, " -f %s, -n %llu", bytes(f->limit_file_bytes, a), (unsigned long long)f->limit_files);
    end_row(out, "", w);
    an_text_puts(w, f->on_battery == 1 ? "battery" : f->on_battery == 0 ? "mains" : "source unknown");
    if (f->battery_percent != AN_UNKNOWN) an_text_printf(w, ", battery at %d %%", f->battery_percent);
    if (f->low_power != AN_UNKNOWN) an_text_printf(w, ", low-power mode %s", f->low_power ? "on" : "off");
    end_row(out, "power", w);
}

static void print_compiler(an_text *out, an_text *w, const an_doctor *d)
{
    char a[16];
    an_text_printf(w, "%s%s%s", d->cc.path[0] ? d->cc.path : "none", d->cc.version[0] ? ": " : "", d->cc.version);
    end_row(out, "compiler", w);
    if (d->os.developer[0]) put_row(out, "tools", d->os.developer);
    if (d->cc.cache_dir[0])
        an_text_printf(w, "%s on %s: %lld files, %s; it may be deleted, kernels are compiled again", d->cc.cache_dir,
                       d->cache_mount.type[0] ? d->cache_mount.type : "an unknown file system",
                       (long long)d->cc.cached_files, bytes((uint64_t)d->cc.cached_bytes, a));
    else
        an_text_puts(w, "none");
    end_row(out, "cache", w);
}

static void print_devices(an_text *out, an_text *w, const an_doctor *d)
{
    char a[16], b[16];
    for (int i = 0; i < d->n_devices; i++) {
        const an_device_facts *x = &d->device[i];
        const an_measured *m = &d->measured[i];
        an_text_printf(w, "%s%s", !x->built ? "not built: " : !x->available ? "not available: " : "", x->reason);
        end_row(out, x->name, w);
        if (!m->gemm_gflops) continue;
        const bool tera = m->gemm_bf16_gflops >= 1e4;
        const double unit = tera ? 1e-3 : 1;
        an_text_printf(w, "matmul of %lldx%lld %.1f %sFLOP/s in float32, %.1f in bfloat16; copy %.1f GB/s",
                       (long long)m->gemm_side, (long long)m->gemm_side, unit * m->gemm_gflops, tera ? "T" : "G",
                       unit * m->gemm_bf16_gflops, m->copy_gbytes);
        end_row(out, "", w);
        for (int s = 0; s < m->n_isas; s++)
            an_text_printf(w, "%s%s %.0f and %.0f%s",
                           s ? ", " : "multiply-adds of one core in GFLOP/s, float32 and bfloat16: ", m->isa[s].name,
                           m->isa[s].f32_gflops, m->isa[s].bf16_gflops, m->isa[s].taken ? " (taken)" : "");
        if (m->n_isas) end_row(out, "", w);
        if (!m->driver_bytes) continue;
        an_text_printf(w, "memory %s for programs; beside that driver and libraries (and other programs) hold %s",
                       bytes(m->device_bytes, a), bytes(m->driver_bytes, b));
        end_row(out, "", w);
    }
}

static void print_ranks(an_text *out, an_text *w, const an_doctor *d)
{
    char version[100];
    an_err why = {0};
    for (int i = 0; i < d->n_links; i++) {
        an_text_printf(w, "%s: %s", d->link[i].what, d->link[i].found);
        end_row(out, i ? "" : "links", w);
    }
    if (an_comm_mpi_version(&why, version, sizeof version) == AN_OK)
        an_text_printf(w, "shared memory; %s between hosts; ranks=2 measures", version);
    else
        an_text_printf(w, "shared memory; between hosts: %s", why.text);
    an_err_clear(&why);
    end_row(out, "ranks", w);
}

static void print_all(an_text *out, const an_doctor *d)
{
    an_text w = {0};
    an_text_printf(&w, "%s, compiled by %s", AN_VERSION, AN_COMPILER);
    end_row(out, "anneal", &w);
    print_machine(out, &w, &d->os);
    print_compiler(out, &w, d);
    an_text_puts(out, "\n");
    print_devices(out, &w, d);
    print_ranks(out, &w, d);
    an_text_puts(out, "\n");
    for (int i = 0; i < d->n_findings; i++) put_row(out, d->finding[i].fault ? "fault" : "hint", d->finding[i].text);
    put_row(out, "verdict", an_doctor_faulty(d) ? "something is wrong, see above" : "this machine can train");
    out->failed |= w.failed;
    an_text_free(&w);
}

/* ---- for programs */

static void put_pair(an_text *out, const char *key, const char *value)
{
    an_text_printf(out, "\"%s\":", key);
    if (value[0])
        an_json_put(out, value);
    else
        an_text_puts(out, "null");
}

static void json_devices(an_text *out, const an_doctor *d)
{
    for (int i = 0; i < d->n_devices; i++) {
        const an_device_facts *x = &d->device[i];
        const an_measured *m = &d->measured[i];
        an_text_puts(out, i ? ",{" : "{");
        put_pair(out, "name", x->name);
        an_text_printf(out, ",\"built\":%s,\"available\":%s,\"runs\":%s,", x->built ? "true" : "false",
                       x->available ? "true" : "false", x->runs ? "true" : "false");
        put_pair(out, "about", x->reason);
        if (m->gemm_gflops) {
            an_text_printf(out, ",\"gemm_side\":%lld", (long long)m->gemm_side);
            an_put_json(out, "gemm_gflops", m->gemm_gflops);
            an_put_json(out, "gemm_bf16_gflops", m->gemm_bf16_gflops);
            an_put_json(out, "copy_gbytes", m->copy_gbytes);
        }
        if (m->n_isas) an_text_puts(out, ",\"isas\":[");
        for (int s = 0; s < m->n_isas; s++) {
            an_text_puts(out, s ? ",{" : "{");
            put_pair(out, "isa", m->isa[s].name);
            an_put_json(out, "f32_gflops", m->isa[s].f32_gflops);
            an_put_json(out, "bf16_gflops", m->isa[s].bf16_gflops);
            an_text_printf(out, ",\"taken\":%s}", m->isa[s].taken ? "true" : "false");
        }
        if (m->n_isas) an_text_puts(out, "]");
        if (m->driver_bytes)
            an_text_printf(out, ",\"device_bytes\":%llu,\"driver_bytes\":%llu", (unsigned long long)m->device_bytes,
                           (unsigned long long)m->driver_bytes);
        an_text_puts(out, "}");
    }
}

static void json_findings(an_text *out, const an_doctor *d, bool faults)
{
    int n = 0;
    for (int i = 0; i < d->n_findings; i++) {
        if (d->finding[i].fault != faults) continue;
        if (n++) an_text_puts(out, ",");
        an_json_put(out, d->finding[i].text);
    }
}

static void json_all(an_text *out, const an_doctor *d)
{
    an_text_puts(out, "{");
    put_pair(out, "anneal", AN_VERSION);
    an_text_puts(out, ",\"machine\":");
    an_system_info_json(&d->os, out);
    an_text_puts(out, ",\"compiler\":{");
    put_pair(out, "path", d->cc.path);
    an_text_puts(out, ",");
    put_pair(out, "version", d->cc.version);
    an_text_puts(out, "},\"cache\":{");
    put_pair(out, "folder", d->cc.cache_dir);
    an_text_puts(out, ",");
    put_pair(out, "mount", d->cache_mount.type);
    an_text_printf(out, ",\"network\":%s,\"files\":%lld,\"bytes\":%lld},\"devices\":[",
                   d->cache_mount.network ? "true" : "false", (long long)d->cc.cached_files,
                   (long long)d->cc.cached_bytes);
    json_devices(out, d);
    an_text_puts(out, "],");
    an_err none = {0};
    char mpi[100] = "";
    if (an_comm_mpi_version(&none, mpi, sizeof mpi) != AN_OK) mpi[0] = '\0';
    an_err_clear(&none);
    put_pair(out, "mpi", mpi);
    an_text_puts(out, ",\"links\":[");
    for (int i = 0; i < d->n_links; i++) {
        an_text_puts(out, i ? ",{" : "{");
        put_pair(out, "what", d->link[i].what);
        an_text_puts(out, ",");
        put_pair(out, "found", d->link[i].found);
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]");
    an_text_puts(out, ",\"faults\":[");
    json_findings(out, d, true);
    an_text_puts(out, "],\"hints\":[");
    json_findings(out, d, false);
    an_text_puts(out, "]}");
}

/* ---- ranks */

static void put_curve(an_text *out, const an_exchange_curve *c, bool json)
{
    char a[16];
    if (json) {
        an_text_printf(out, "{\"ranks\":%d,", c->ranks);
        put_pair(out, "carrier", c->carrier);
        an_text_puts(out, ",\"sums\":[");
    } else {
        an_text_printf(out, "%d ranks over %s: a sum of all, on the slowest rank", c->ranks, c->carrier);
    }
    for (int i = 0; i < AN_EXCHANGE_POINTS; i++) {
        const an_exchange_point *p = &c->point[i];
        if (json) {
            an_text_printf(out, "%s{\"bytes\":%lld", i ? "," : "", (long long)p->bytes);
            an_put_json(out, "ms", p->ms);
            an_put_json(out, "gbytes", p->gbytes);
            an_text_puts(out, "}");
        } else {
            an_text_printf(out, "\n%10s %10.3f ms %8.2f GB/s", an_bytes_text((double)p->bytes, a), p->ms, p->gbytes);
        }
    }
    if (json) an_text_puts(out, "]}");
}

static an_status measure_ranks(an_err *err, const an_args *args, an_comm *comm, int *exit_code)
{
    an_exchange_curve curve;
    an_text out = {0};
    doctor_values v;
    (void)exit_code;
    AN_TRY(an_config_defaults(err, &an_doctor_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_doctor_keys, &v}, 1));
    if (!comm) return an_fail(err, AN_E_USAGE, "devices=%.60s is one device: there is nothing to add", v.ranks.devices);
    an_device_facts facts;
    const char *device = v.device[0] ? v.device : an_device_auto();
    if (v.ranks.devices[0] && !v.device[0] && !(an_device_find(device, &facts) && facts.gpu))
        return an_fail(err, AN_E_ENV, "devices= measures GPUs, and none runs here; ranks=%d measures processes",
                       an_comm_ranks(comm));
    if (v.device[0] || v.ranks.devices[0])
        AN_TRY(an_exchange_measure_device(err, comm, device, &curve));
    else
        AN_TRY(an_exchange_measure(err, comm, &curve));
    if (an_comm_rank(comm) > 0) return AN_OK;
    put_curve(&out, &curve, args->json);
    return an_print_line(err, &out);
}

/* Whether this process is one of several, or starts some. */
static an_status asks_for_ranks(an_err *err, const doctor_values *v, bool *out)
{
    an_comm_job job;
    AN_TRY(an_comm_job_read(err, &job));
    *out = v->ranks.ranks > 1 || v->ranks.devices[0] || job.ranks > 1;
    return AN_OK;
}

static an_status clean_cache(an_err *err, const an_doctor_options *o, bool json)
{
    an_compiler_facts facts = {0};
    an_text out = {0};
    char text[16];
    an_compiler_facts_read(o->cc, o->cache_dir, &facts);
    if (!facts.cache_dir[0]) return an_fail(err, AN_E_ENV, "%s", facts.why_cache);
    int64_t files;
    const uint64_t freed = an_cache_clean(facts.cache_dir, &files);
    if (json)
        an_text_printf(&out, "{\"files\":%lld,\"bytes\":%llu}", (long long)files, (unsigned long long)freed);
    else
        an_text_printf(&out, "%s: %lld files removed, %s", facts.cache_dir, (long long)files,
                       freed ? an_bytes_text((double)freed, text) : "nothing was there");
    return an_print_line(err, &out);
}

an_status an_cmd_doctor(an_err *err, const an_args *args, int *exit_code)
{
    doctor_values v;
    an_doctor d;
    an_text out = {0};
    bool are_several;
    AN_TRY(an_config_defaults(err, &an_doctor_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_doctor_keys, &v}, 1));
    AN_TRY(asks_for_ranks(err, &v, &are_several));
    if (are_several) return an_ranks_run(err, args, measure_ranks, exit_code);
    const an_doctor_options o = {.device = v.device[0] ? v.device : NULL,
                                 .cc = v.cc[0] ? v.cc : NULL,
                                 .cache_dir = v.cache_dir[0] ? v.cache_dir : NULL,
                                 .measure = v.measure};
    if (v.clean_cache) return clean_cache(err, &o, args->json);
    AN_TRY(an_doctor_examine(err, &o, &d));
    if (an_doctor_faulty(&d)) *exit_code = AN_EXIT_ENVIRONMENT;
    if (args->json) {
        json_all(&out, &d);
        return an_print_line(err, &out);
    }
    print_all(&out, &d);
    if (out.len) out.data[--out.len] = '\0'; /* an_print_line adds the newline */
    return an_print_line(err, &out);
}
