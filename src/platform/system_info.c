/* system_info.c: facts about a Linux machine, mounts, and the facts as JSON.
 *
 * Owns:      the reading of /proc, /sys and /etc/os-release, below a root folder that tests replace.
 * Does not:  parse macOS' texts (system_info_mac.c), or fail: a fact that cannot be read keeps its previous value.
 */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#if !defined(_DARWIN_C_SOURCE) && defined(__APPLE__)
#define _DARWIN_C_SOURCE
#endif
#include "platform/system_info.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/mount.h>
#endif

enum { FILE_BYTES = 1 << 20, PATH_BYTES = 1400 };

/* ---------------------------------------------------------------------------------------------- small files */

/* The text of the file `path` below `root`, to be freed; NULL when it cannot be read. Files of /proc report a size of
 * 0, so it is read up to end of file. */
static char *text_of(const char *root, const char *path)
{
    char full[PATH_BYTES];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return NULL;
    FILE *f = fopen(full, "r");
    char *text = f ? malloc(FILE_BYTES) : NULL;
    if (text) text[fread(text, 1, FILE_BYTES - 1, f)] = '\0';
    if (f) fclose(f);
    return text;
}

/* The first line of a small file; "" when there is none. Returns whether there was one. */
static bool line_of(const char *root, const char *path, char *out, size_t cap)
{
    char *text = text_of(root, path);
    out[0] = '\0';
    if (text == NULL) return false;
    snprintf(out, cap, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
    return out[0] != '\0';
}

static bool exists(const char *root, const char *path)
{
    char full[PATH_BYTES];
    snprintf(full, sizeof full, "%s%s", root, path);
    return access(full, F_OK) == 0;
}

/* The value of the first line that begins with `key` and then blanks and `sep`; false when there is none. */
static bool field_of(const char *text, const char *key, char sep, char *out, size_t cap)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, key, n) != 0) continue;
        const char *at = line + n;
        while (*at == ' ' || *at == '\t') at++;
        if (*at++ != sep) continue;
        while (*at == ' ' || *at == '\t' || *at == '"') at++;
        snprintf(out, cap, "%.*s", (int)strcspn(at, "\n\""), at);
        return true;
    }
    return false;
}

static uint64_t kib_field(const char *text, const char *key)
{
    char value[64];
    return field_of(text, key, ':', value, sizeof value) ? 1024 * strtoull(value, NULL, 10) : 0;
}

/* "48K", "2M", "96000K" */
static uint64_t size_text(const char *s)
{
    char *end;
    uint64_t n = strtoull(s, &end, 10);
    return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

static bool has_flag(const char *flags, const char *flag)
{
    size_t n = strlen(flag);
    for (const char *p = flags; (p = strstr(p, flag)) != NULL; p += n)
        if ((p == flags || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) return true;
    return false;
}

/* ---------------------------------------------------------------------------------------------- processor */

static void cpu_features(const char *flags, an_system_info *out)
{
    static const char *const used[] = {"sse4_2",   "avx",      "avx2",     "fma",      "f16c",        "bmi2",
                                       "avx512f",  "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512_fp16",
                                       "amx_tile", "amx_bf16", "asimd",    "asimdhp",  "bf16",        "i8mm",
                                       "sve",      "sve2",     "svebf16",  "sme"};
    size_t n = 0;
    for (size_t i = 0; i < AN_COUNT(used) && n + 16 < sizeof out->features; i++)
        if (has_flag(flags, used[i]))
            n += (size_t)snprintf(out->features + n, sizeof out->features - n, "%s%s", n ? " " : "", used[i]);
}

/* Logical processors, and physical cores as distinct pairs of (package, core); ARM does not print the pairs. */
static void count_cores(const char *cpuinfo, an_system_info *out)
{
    enum { MOST = 4096 };
    int package = 0, cores = 0, threads = 0;
    int *seen = malloc(MOST * sizeof *seen);
    if (seen == NULL) return;
    for (const char *line = cpuinfo; line != NULL && *line; line = strchr(line, '\n'), line += line != NULL) {
        int core, known = 0;
        if (strncmp(line, "processor", 9) == 0 && isspace((unsigned char)line[9])) threads++;
        if (strncmp(line, "physical id", 11) == 0) sscanf(line, "physical id : %d", &package);
        if (strncmp(line, "core id", 7) != 0 || sscanf(line, "core id : %d", &core) != 1) continue;
        for (int i = 0; i < cores && !known; i++) known = seen[i] == package * 65536 + core;
        if (!known && cores < MOST) seen[cores++] = package * 65536 + core;
    }
    free(seen);
    if (threads) out->threads = threads;
    if (cores || threads) out->cores = cores ? cores : threads;
}

static void read_cpu(const char *root, an_system_info *out)
{
    char *text = text_of(root, "/proc/cpuinfo"), *flags = malloc(8192);
    if (text != NULL && flags != NULL) {
        if (!field_of(text, "model name", ':', out->cpu, sizeof out->cpu) &&
            !field_of(text, "Model", ':', out->cpu, sizeof out->cpu))
            line_of(root, "/proc/device-tree/model", out->cpu, sizeof out->cpu);
        if (field_of(text, "flags", ':', flags, 8192)) {
            if (has_flag(flags, "hypervisor")) snprintf(out->hypervisor, sizeof out->hypervisor, "unnamed");
            cpu_features(flags, out);
        } else if (field_of(text, "Features", ':', flags, 8192)) {
            cpu_features(flags, out);
        }
        count_cores(text, out);
    }
    free(flags);
    free(text);
    for (int i = 0; i < 8; i++) {
        char folder[80], path[128], level[16], type[32], size[32];
        snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu0/cache/index%d", i);
        snprintf(path, sizeof path, "%s/level", folder);
        if (!line_of(root, path, level, sizeof level)) break;
        snprintf(path, sizeof path, "%s/type", folder);
        line_of(root, path, type, sizeof type);
        snprintf(path, sizeof path, "%s/size", folder);
        line_of(root, path, size, sizeof size);
        uint64_t bytes = size_text(size);
        if (level[0] == '1' && strcmp(type, "Instruction") != 0) out->l1d_bytes = bytes;
        if (level[0] == '2') out->l2_bytes = bytes;
        if (level[0] == '3') out->l3_bytes = bytes;
        snprintf(path, sizeof path, "%s/coherency_line_size", folder);
        if (line_of(root, path, size, sizeof size)) out->line_bytes = strtoull(size, NULL, 10);
    }
    line_of(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", out->governor, sizeof out->governor);
}

/* The kernel counts throttling since boot, not since the run began, so the count itself is reported. */
static void read_thermal(const char *root, an_system_info *out)
{
    char text[32];
    if (!line_of(root, "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", text, sizeof text))
        return;
    out->throttled = strtoll(text, NULL, 10);
    if (out->throttled == 0)
        snprintf(out->thermal, sizeof out->thermal, "nominal");
    else
        snprintf(out->thermal, sizeof out->thermal, "throttled %.11s times", text);
}

/* ---------------------------------------------------------------------------------- container, power, memory */

static void read_container(const char *root, an_system_info *out)
{
    static const struct {
        const char *word, *name;
    } words[] = {{"kubepods", "kubernetes"},   {"docker", "docker"}, {"libpod", "podman"},
                 {"containerd", "containerd"}, {"lxc", "lxc"},       {"garden", "garden"}};
    char line[256];
    char *group = text_of(root, "/proc/1/cgroup"), *environment = text_of(root, "/run/systemd/container");
    if (exists(root, "/.dockerenv")) snprintf(out->container, sizeof out->container, "docker");
    if (exists(root, "/run/.containerenv")) snprintf(out->container, sizeof out->container, "podman");
    if (environment != NULL && environment[0])
        snprintf(out->container, sizeof out->container, "%.*s", (int)AN_MIN(strcspn(environment, "\n"), 31),
                 environment);
    for (size_t i = 0; group != NULL && !out->container[0] && i < AN_COUNT(words); i++)
        if (strstr(group, words[i].word) != NULL) snprintf(out->container, sizeof out->container, "%s", words[i].name);
    free(environment);
    free(group);
    /* Process 1 of a full system is its init; in a PID namespace it is a shell or a program. */
    if (!out->container[0] && line_of(root, "/proc/1/comm", line, sizeof line) && strcmp(line, "systemd") != 0 &&
        strcmp(line, "init") != 0 && strcmp(line, "launchd") != 0)
        snprintf(out->container, sizeof out->container, "namespace");
    if (line_of(root, "/proc/sys/kernel/osrelease", line, sizeof line) && strstr(line, "icrosoft") != NULL)
        snprintf(out->container, sizeof out->container, "wsl");
    static const struct {
        const char *vendor, *name;
    } vendors[] = {{"QEMU", "kvm"},      {"Amazon", "amazon"},      {"Google", "google"}, {"Microsoft", "hyper-v"},
                   {"VMware", "vmware"}, {"innotek", "virtualbox"}, {"Xen", "xen"},       {"Apple", "apple"}};
    if (line_of(root, "/sys/class/dmi/id/sys_vendor", line, sizeof line))
        for (size_t i = 0; i < AN_COUNT(vendors); i++)
            if (strstr(line, vendors[i].vendor) != NULL)
                snprintf(out->hypervisor, sizeof out->hypervisor, "%s", vendors[i].name);
}

/* Emulation in user space shows in this process' memory maps (the kernel's list of binary formats shows only what is
 * registered). */
static void read_translation(const char *root, an_system_info *out)
{
    char *text = text_of(root, "/proc/cpuinfo");
    if (text != NULL && strstr(text, "VirtualApple") != NULL) /* Rosetta's processor name in a Linux VM on a Mac */
        snprintf(out->translated, sizeof out->translated, "Rosetta 2");
    free(text);
    text = text_of(root, "/proc/self/maps");
    if (text != NULL && strstr(text, "/rosetta") != NULL)
        snprintf(out->translated, sizeof out->translated, "Rosetta 2");
    else if (text != NULL && strstr(text, "qemu-") != NULL)
        snprintf(out->translated, sizeof out->translated, "qemu");
    free(text);
}

/* A machine is on battery when a battery discharges and no mains supply is online. */
static void read_power(const char *root, an_system_info *out)
{
    char folder[PATH_BYTES], path[PATH_BYTES], value[64];
    snprintf(folder, sizeof folder, "%s/sys/class/power_supply", root);
    DIR *d = opendir(folder);
    bool mains = false, battery = false, discharging = false;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/type", e->d_name);
        if (!line_of(root, path, value, sizeof value)) continue;
        snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/scope", e->d_name);
        char scope[32];
        if (line_of(root, path, scope, sizeof scope) && strcmp(scope, "Device") == 0)
            continue; /* the battery of a mouse or keyboard */
        if (strcmp(value, "Mains") == 0 || strcmp(value, "USB") == 0) {
            snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/online", e->d_name);
            mains |= line_of(root, path, value, sizeof value) && value[0] == '1';
        } else if (strcmp(value, "Battery") == 0) {
            battery = true;
            snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/status", e->d_name);
            discharging |= line_of(root, path, value, sizeof value) && strcmp(value, "Discharging") == 0;
            snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/capacity", e->d_name);
            if (line_of(root, path, value, sizeof value)) out->battery_percent = atoi(value);
        }
    }
    if (d != NULL) closedir(d);
    if (mains || battery) out->on_battery = battery && discharging && !mains;
    if (line_of(root, "/sys/firmware/acpi/platform_profile", value, sizeof value))
        out->low_power = strcmp(value, "low-power") == 0 || strcmp(value, "quiet") == 0;
}

/* Memory pressure, "some avg10=0.12 avg60=...": of the control group where there is one, else of the machine. */
static void read_pressure(const char *root, an_system_info *out)
{
    static const char *const paths[] = {"/sys/fs/cgroup/memory.pressure", "/proc/pressure/memory"};
    char line[128];
    for (size_t i = 0; i < AN_COUNT(paths); i++)
        if (line_of(root, paths[i], line, sizeof line) && sscanf(line, "some avg10=%lf", &out->memory_stall) == 1)
            return;
}

static void read_memory(const char *root, an_system_info *out)
{
    char *text = text_of(root, "/proc/meminfo");
    if (text != NULL) {
        out->ram_bytes = kib_field(text, "MemTotal");
        out->free_bytes = kib_field(text, "MemAvailable");
        out->swap_bytes = kib_field(text, "SwapTotal");
        out->swap_free_bytes = kib_field(text, "SwapFree");
    }
    free(text);
    read_pressure(root, out);
}

void an_system_info_linux_moving(const char *root, an_system_info *out)
{
    read_memory(root, out);
    read_thermal(root, out);
    read_power(root, out);
}

void an_system_info_linux(const char *root, an_system_info *out)
{
    char *text = text_of(root, "/etc/os-release");
    if (text != NULL) field_of(text, "PRETTY_NAME", '=', out->system, sizeof out->system);
    free(text);
    an_system_info_linux_moving(root, out);
    read_cpu(root, out);
    read_container(root, out);
    read_translation(root, out);
}

/* ---------------------------------------------------------------------------------------------- this machine */

static uint64_t limit_of(int resource)
{
    struct rlimit l;
    return getrlimit(resource, &l) != 0 || l.rlim_cur == RLIM_INFINITY ? 0 : (uint64_t)l.rlim_cur;
}

an_status an_enough_stack(an_err *err)
{
    /* What readers of 2,048 levels take is under 256 KiB; sanitizers take a few times as much. */
    const rlim_t wanted = (rlim_t)8 << 20, least = (rlim_t)512 << 10;
    struct rlimit l;
    if (getrlimit(RLIMIT_STACK, &l) != 0 || l.rlim_cur == RLIM_INFINITY || l.rlim_cur >= wanted) return AN_OK;
    l.rlim_cur = l.rlim_max == RLIM_INFINITY || l.rlim_max > wanted ? wanted : l.rlim_max;
    if (setrlimit(RLIMIT_STACK, &l) != 0) (void)getrlimit(RLIMIT_STACK, &l);
    if (l.rlim_cur >= least) return AN_OK;
    return an_fail(err, AN_E_ENV, "the stack is limited to %llu KiB, and %llu KiB are needed: raise ulimit -s",
                   (unsigned long long)l.rlim_cur >> 10, (unsigned long long)least >> 10);
}

static void read_limits(an_system_info *out)
{
    out->limit_address_bytes = limit_of(RLIMIT_AS);
    out->limit_data_bytes = limit_of(RLIMIT_DATA);
    out->limit_lock_bytes = limit_of(RLIMIT_MEMLOCK);
    out->limit_file_bytes = limit_of(RLIMIT_FSIZE);
    out->limit_files = limit_of(RLIMIT_NOFILE);
    out->cores_usable = an_cores_available();
    double cores;
    out->cgroup_bytes = an_cgroup_limits(&cores);
    out->cgroup_cores = cores;
}

#ifdef __APPLE__
/* The output of a system program, to be freed; NULL when it cannot be run. */
static char *output_of(const char *const *argv)
{
    enum { OUTPUT_BYTES = 1 << 16 };
    char *text = calloc(1, OUTPUT_BYTES);
    an_err quiet = {0};
    int code = -1;
    if (text != NULL && an_spawn(&quiet, argv, 5, text, OUTPUT_BYTES, &code) == AN_OK && code == 0) return text;
    free(text);
    return NULL;
}
#define OUTPUT_OF(...) output_of((const char *const[]){__VA_ARGS__, NULL})

static void read_system(an_system_info *out, bool moving)
{
    char *text[] = {OUTPUT_OF("/usr/sbin/sysctl", "hw", "machdep.cpu", "vm.swapusage", "kern.hv_vmm_present",
                              "kern.memorystatus_level"),
                    moving ? NULL : OUTPUT_OF("/usr/sbin/sysctl", "sysctl.proc_translated"),
                    OUTPUT_OF("/usr/bin/pmset", "-g"),
                    OUTPUT_OF("/usr/bin/pmset", "-g", "batt"),
                    OUTPUT_OF("/usr/bin/pmset", "-g", "therm"),
                    moving ? NULL : OUTPUT_OF("/usr/bin/sw_vers"),
                    moving ? NULL : OUTPUT_OF("/usr/bin/xcode-select", "-p")};
    an_system_info_macos(&(an_mac_texts){.sysctl = text[0],
                                         .translated = text[1],
                                         .pmset = text[2],
                                         .pmset_batt = text[3],
                                         .pmset_therm = text[4],
                                         .sw_vers = text[5],
                                         .xcode_select = text[6]},
                         out);
    for (size_t i = 0; i < AN_COUNT(text); i++) free(text[i]);
}
#else
static void read_system(an_system_info *out, bool moving)
{
    if (moving)
        an_system_info_linux_moving("", out);
    else
        an_system_info_linux("", out);
}
#endif

void an_system_info_update(an_system_info *io)
{
    read_system(io, true);
}

void an_system_info_read(an_system_info *out)
{
    struct utsname u;
    *out = (an_system_info){.on_battery = AN_UNKNOWN,
                            .battery_percent = AN_UNKNOWN,
                            .low_power = AN_UNKNOWN,
                            .throttled = AN_UNKNOWN,
                            .memory_stall = AN_UNKNOWN};
    if (uname(&u) == 0) {
        snprintf(out->kernel, sizeof out->kernel, "%.70s %.70s", u.sysname, u.release);
        snprintf(out->machine, sizeof out->machine, "%.31s", u.machine);
    }
    read_limits(out);
    read_system(out, false);
    if (!out->threads) out->threads = out->cores_usable;
}

/* ---------------------------------------------------------------------------------------------- JSON */

static void put_key(an_text *out, const char *key)
{
    an_text_printf(out, "%s\"%s\":", out->len && out->data[out->len - 1] != '{' ? "," : "", key);
}

/* Texts from the kernel have an unknown encoding: characters other than printable ASCII become '?'. */
static void put_text(an_text *out, const char *key, const char *value)
{
    put_key(out, key);
    if (!value[0]) {
        an_text_puts(out, "null");
        return;
    }
    an_text_puts(out, "\"");
    for (const char *p = value; *p; p++) {
        char c[3] = {*p == '"' || *p == '\\' ? '\\' : ' ', *p, 0};
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~') c[1] = '?';
        an_text_puts(out, c[0] == '\\' ? c : c + 1);
    }
    an_text_puts(out, "\"");
}

static void put_amount(an_text *out, const char *key, uint64_t value)
{
    put_key(out, key);
    if (value)
        an_text_printf(out, "%llu", (unsigned long long)value);
    else
        an_text_puts(out, "null");
}

static void put_answer(an_text *out, const char *key, int value)
{
    put_key(out, key);
    an_text_puts(out, value == AN_UNKNOWN ? "null" : value ? "true" : "false");
}

void an_system_info_json(const an_system_info *f, an_text *out)
{
    const struct {
        const char *key, *value;
    } texts[] = {{"system", f->system},       {"kernel", f->kernel},
                 {"machine", f->machine},     {"cpu", f->cpu},
                 {"features", f->features},   {"translated", f->translated},
                 {"container", f->container}, {"hypervisor", f->hypervisor},
                 {"developer", f->developer}, {"thermal", f->thermal},
                 {"governor", f->governor}};
    const struct {
        const char *key;
        uint64_t value;
    } amounts[] = {{"cores", (uint64_t)f->cores},
                   {"fast_cores", (uint64_t)f->cores_fast},
                   {"slow_cores", (uint64_t)f->cores_slow},
                   {"processors", (uint64_t)f->threads},
                   {"usable_cores", (uint64_t)f->cores_usable},
                   {"l1d_bytes", f->l1d_bytes},
                   {"l2_bytes", f->l2_bytes},
                   {"l3_bytes", f->l3_bytes},
                   {"cache_line_bytes", f->line_bytes},
                   {"ram_bytes", f->ram_bytes},
                   {"available_bytes", f->free_bytes},
                   {"swap_bytes", f->swap_bytes},
                   {"swap_free_bytes", f->swap_free_bytes},
                   {"cgroup_bytes", f->cgroup_bytes},
                   {"limit_address_bytes", f->limit_address_bytes},
                   {"limit_data_bytes", f->limit_data_bytes},
                   {"limit_lock_bytes", f->limit_lock_bytes},
                   {"limit_file_bytes", f->limit_file_bytes},
                   {"limit_files", f->limit_files}};
    an_text_puts(out, "{");
    for (size_t i = 0; i < AN_COUNT(texts); i++) put_text(out, texts[i].key, texts[i].value);
    for (size_t i = 0; i < AN_COUNT(amounts); i++) put_amount(out, amounts[i].key, amounts[i].value);
    put_key(out, "cgroup_cores");
    if (f->cgroup_cores > 0)
        an_text_printf(out, "%.3g", f->cgroup_cores);
    else
        an_text_puts(out, "null");
    put_answer(out, "on_battery", f->on_battery);
    put_answer(out, "low_power", f->low_power);
    put_key(out, "memory_stall_percent");
    if (f->memory_stall >= 0)
        an_text_printf(out, "%.4g", f->memory_stall);
    else
        an_text_puts(out, "null");
    put_key(out, "battery_percent");
    if (f->battery_percent == AN_UNKNOWN)
        an_text_puts(out, "null}");
    else
        an_text_printf(out, "%d}", f->battery_percent);
}

/* ---------------------------------------------------------------------------------------------- mounts */

static bool is_network(const char *type)
{
    static const char *const types[] = {"nfs",
                                        "nfs4",
                                        "cifs",
                                        "smb3",
                                        "smbfs",
                                        "9p",
                                        "afs",
                                        "ceph",
                                        "glusterfs",
                                        "lustre",
                                        "beegfs",
                                        "gpfs",
                                        "afpfs",
                                        "webdav",
                                        "ncpfs",
                                        "virtiofs",
                                        "vboxsf",
                                        "fuse.sshfs",
                                        "fuse.s3fs",
                                        "fuse.gcsfuse",
                                        "fuse.rclone",
                                        "fuse.vmhgfs-fuse",
                                        "fuse.gvfsd-fuse",
                                        "drvfs",
                                        "prl_fs"};
    for (size_t i = 0; i < AN_COUNT(types); i++)
        if (strcmp(type, types[i]) == 0) return true;
    return false;
}

/* Finds the mount of `path`: the longest FOLDER that contains it. A line of mountinfo is
 *
 *     ID PARENT MAJ:MIN ROOT FOLDER OPTIONS [FIELDS...] - TYPE SOURCE SUPER-OPTIONS
 *
 * with blanks in FOLDER written as \040. */
void an_system_info_mount(const char *mountinfo, const char *path, an_mount_info *out)
{
    size_t best = 0;
    *out = (an_mount_info){0};
    for (const char *line = mountinfo; line != NULL && *line; line = strchr(line, '\n'), line += line != NULL) {
        char folder[1024], options[256], type[64], plain[1024];
        if (sscanf(line, "%*s %*s %*s %*s %1023s %255s", folder, options) != 2) continue;
        const char *dash = strstr(line, " - ");
        if (dash == NULL || dash > line + strcspn(line, "\n") || sscanf(dash, " - %63s", type) != 1) continue;
        size_t n = 0;
        for (const char *p = folder; *p; n++) {
            unsigned code;
            if (*p == '\\' && sscanf(p, "\\%3o", &code) == 1) {
                plain[n] = (char)code;
                p += 4;
            } else {
                plain[n] = *p++;
            }
        }
        plain[n] = '\0';
        bool root = strcmp(plain, "/") == 0;
        if (!root && (strncmp(path, plain, n) != 0 || (path[n] != '/' && path[n] != '\0'))) continue;
        if (n < best) continue; /* a later mount covers an earlier one at the same place */
        best = n;
        snprintf(out->folder, sizeof out->folder, "%.511s", plain);
        snprintf(out->type, sizeof out->type, "%s", type);
        out->read_only = strncmp(options, "ro", 2) == 0 && (options[2] == ',' || options[2] == '\0');
        out->network = is_network(type);
    }
}

/* The nearest parent of `path` that exists, absolute and without links; "" when there is none. */
static void resolve(const char *path, char out[PATH_BYTES])
{
    char at[PATH_BYTES];
    snprintf(at, sizeof at, "%s", path[0] ? path : ".");
    for (;;) {
        char *real = realpath(at, NULL);
        if (real != NULL) {
            snprintf(out, PATH_BYTES, "%s", real);
            free(real);
            return;
        }
        char *slash = strrchr(at, '/');
        if (strcmp(at, ".") == 0 || strcmp(at, "/") == 0) break;
        if (slash == NULL)
            snprintf(at, sizeof at, ".");
        else
            slash[slash == at] = '\0';
    }
    out[0] = '\0';
}

void an_mount_info_read(const char *path, an_mount_info *out)
{
    char real[PATH_BYTES];
    *out = (an_mount_info){0};
    resolve(path, real);
#ifdef __APPLE__
    struct statfs fs;
    if (!real[0] || statfs(real, &fs) != 0) return;
    snprintf(out->type, sizeof out->type, "%.63s", fs.f_fstypename);
    snprintf(out->folder, sizeof out->folder, "%.511s", fs.f_mntonname);
    out->network = !(fs.f_flags & MNT_LOCAL) || is_network(out->type);
    out->read_only = (fs.f_flags & MNT_RDONLY) != 0;
#else
    char *text = text_of("", "/proc/self/mountinfo");
    if (text != NULL && real[0]) an_system_info_mount(text, real, out);
    free(text);
#endif
}
