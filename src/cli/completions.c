/* completions.c: the manual page's commands and settings, and completions for bash, zsh and fish, from the tables of main.c
 * and the configs: they are the only description of what the program takes.
 *
 * Owns:      the escapes of mdoc and of the three shells.
 * Does not:  hold prose about commands: that is the tables'; what surrounds them in the manual is man/anneal.1.in.
 */
#include "cli/cli.h"
#include <string.h>

/* ---- what a command takes */

static bool takes_preset(const an_command *c)
{
    return strstr(c->usage, "PRESET") != NULL;
}

/* The first words that a usage line offers in lower case: "matmul" and "copy" of bench PRESET|matmul|copy. */
static void put_literals(an_text *out, const an_command *c, const char *before)
{
    const char *at = strchr(c->usage, '|');
    while (at && *at == '|') {
        const size_t n = strcspn(++at, "| ]");
        if (strspn(at, "abcdefghijklmnopqrstuvwxyz") >= n) an_text_printf(out, "%s%.*s", before, (int)n, at);
        at += n;
    }
}

/* Calls `put` for every key of a command. */
typedef void (*put_key_fn)(an_text *out, const an_command *c, const an_config_field *f);
typedef struct key_walk {
    an_text *out;
    const an_command *c;
    put_key_fn put;
} key_walk;

static void walk_table(void *arg, const char *owner, const an_config *keys)
{
    const key_walk *w = arg;
    (void)owner;
    for (size_t i = 0; i < keys->n; i++) w->put(w->out, w->c, &keys->fields[i]);
}

static void each_key(an_text *out, const an_command *c, put_key_fn put)
{
    key_walk w = {out, c, put};
    an_command_each_table(c, walk_table, &w);
}

/* The values a key may have, separated by blanks; "": any. */
static void put_values(an_text *out, const an_config_field *f)
{
    if (f->type == AN_CONFIG_BOOL) an_text_puts(out, "true false");
    if (f->type == AN_CONFIG_DTYPE) an_text_puts(out, "float32 bfloat16 float16");
    for (const char *p = f->choices ? f->choices : ""; *p; p++) an_text_putn(out, *p == '|' ? " " : p, 1);
}

static bool has_values(const an_config_field *f)
{
    return f->type == AN_CONFIG_BOOL || f->type == AN_CONFIG_DTYPE || f->choices;
}

/* ---- the manual: mdoc */

/* Text with mdoc's escapes; newlines become blanks. */
static void put_roff(an_text *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        const bool first = p == text || p[-1] == '\n';
        if (*p == '\\')
            an_text_puts(out, "\\e");
        else if (first && (*p == '.' || *p == '\''))
            an_text_printf(out, "\\&%c", *p);
        else
            an_text_putn(out, *p == '\n' && !p[1] ? " " : p, 1);
    }
}

static void man_field(an_text *out, const an_command *c, const an_config_field *f)
{
    (void)c;
    an_text_printf(out, ".It Ar %s Ns = Ns ", f->name);
    if (f->initial[0])
        put_roff(out, f->initial);
    else
        an_text_puts(out, "\\&");
    an_text_puts(out, "\n");
    put_roff(out, f->doc);
    if (f->choices) an_text_printf(out, " (%s)", f->choices);
    if (f->min != 0 || f->max != 0) an_text_printf(out, " (%.15g to %.15g)", f->min, f->max);
    an_text_puts(out, "\n");
}

static void man_table(an_text *out, const an_config *keys)
{
    an_text_puts(out, ".Bl -tag -width Ds -compact\n");
    for (size_t i = 0; i < keys->n; i++) man_field(out, NULL, &keys->fields[i]);
    an_text_puts(out, ".El\n");
}

static void man_run_table(void *arg, const char *owner, const an_config *keys)
{
    if (*owner) an_text_printf(arg, ".Pp\nOf %s:\n", owner);
    man_table(arg, keys);
}

static void man(an_text *out)
{
    an_text_puts(out, ".Sh COMMANDS\n");
    for (size_t i = 0; i < an_n_commands; i++) {
        const an_command *c = &an_commands[i];
        an_text_printf(out, ".Ss anneal ");
        for (const char *x = c->usage; *x; x++)
            an_text_printf(out, "%c%s", *x, *x == '|' ? "\\:" : ""); /* a long choice may be broken there */
        an_text_printf(out, "\n");
        put_roff(out, c->summary);
        an_text_puts(out, ".\n");
        an_text details = {0};
        an_command_details(c, &details);
        if (details.len) put_roff(out, details.data);
        if (details.len) an_text_puts(out, "\n");
        an_text_free(&details);
        if (c->run_keys) an_text_puts(out, "Takes the settings of a run, see below.\n");
        if (c->json) an_text_puts(out, "Takes\n.Fl Fl json .\n");
        if (c->keys) man_table(out, c->keys);
        if (c->eval_keys) an_train_each_eval_table(man_run_table, out);
    }
    an_text_puts(out, ".Sh PRESETS\n.Bl -tag -width shakespeare_char -compact\n");
    const an_model *model;
    const an_preset *p;
    for (size_t i = 0; (p = an_preset_at(i, &model)) != NULL; i++) {
        an_text_printf(out, ".It Cm %s\n", p->name);
        put_roff(out, p->summary);
        an_text_puts(out, "\n");
    }
    an_text_puts(out, ".El\n.Sh SETTINGS OF A RUN\nWith their defaults:\n");
    an_train_each_table(man_run_table, out);
}

/* ---- shells */

/* 'text' in single quotes; a quote inside becomes '\'' . */
static void put_quoted(an_text *out, const char *text)
{
    an_text_puts(out, "'");
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            an_text_puts(out, "'\\''");
        else
            an_text_putn(out, *p == '\n' ? " " : p, 1);
    }
    an_text_puts(out, "'");
}

static void put_presets(an_text *out, const char *between)
{
    const an_model *model;
    const an_preset *p;
    for (size_t i = 0; (p = an_preset_at(i, &model)) != NULL; i++)
        an_text_printf(out, "%s%s", i ? between : "", p->name);
}

static void put_commands(an_text *out)
{
    for (size_t i = 0; i < an_n_commands; i++) an_text_printf(out, "%s%s", i ? " " : "", an_commands[i].name);
}

static void bash_key(an_text *out, const an_command *c, const an_config_field *f)
{
    (void)c;
    an_text_printf(out, " %s=", f->name);
}

static void bash_values(an_text *out, const an_command *c, const an_config_field *f)
{
    if (!has_values(f)) return;
    an_text_printf(out, "    %s:%s) values='", c->name, f->name);
    put_values(out, f);
    an_text_puts(out, "' ;;\n");
}

static void bash(an_text *out)
{
    an_text_puts(out,
                 "# Completion of anneal for bash, made by: anneal help --format bash\n"
                 "_anneal() {\n"
                 "    local line=${COMP_LINE:0:COMP_POINT} command=${COMP_WORDS[1]} token keys='' words='' values=''\n"
                 "    token=${line##*[[:space:]]}\n"
                 "    COMPREPLY=()\n"
                 "    if [ \"$COMP_CWORD\" -le 1 ]; then\n"
                 "        COMPREPLY=($(compgen -W '");
    put_commands(out);
    an_text_puts(out, "' -- \"$token\"))\n        return\n    fi\n    case $command in\n");
    for (size_t i = 0; i < an_n_commands; i++) {
        const an_command *c = &an_commands[i];
        an_text_printf(out, "    %s) keys='%s --quiet", c->name, c->json ? " --json" : "");
        each_key(out, c, bash_key);
        an_text_puts(out, "' words='");
        if (takes_preset(c)) put_presets(out, " ");
        put_literals(out, c, " ");
        if (strcmp(c->name, "help") == 0) put_commands(out);
        an_text_puts(out, "' ;;\n");
    }
    an_text_puts(out, "    esac\n"
                      "    local plain=${token#--} dashes=''\n"
                      "    [ \"$plain\" = \"$token\" ] || dashes=--\n"
                      "    if [ \"$plain\" != \"${plain%%=*}\" ]; then # after KEY=: only what follows is replaced\n"
                      "        case $command:${plain%%=*} in\n");
    for (size_t i = 0; i < an_n_commands; i++) each_key(out, &an_commands[i], bash_values);
    an_text_puts(out, "        esac\n"
                      "        if [ -n \"$values\" ]; then\n"
                      "            COMPREPLY=($(compgen -W \"$values\" -- \"${plain#*=}\"))\n"
                      "        else\n"
                      "            local IFS=$'\\n'\n"
                      "            COMPREPLY=($(compgen -f -- \"${plain#*=}\"))\n"
                      "        fi\n"
                      "        return\n"
                      "    fi\n"
                      "    local key all=''\n"
                      "    for key in $keys; do all=\"$all $dashes${key#--} ${key%%[!-]*}${key#--}\"; done\n"
                      "    COMPREPLY=($(compgen -W \"$all $words\" -- \"$token\" | sort -u))\n"
                      "    local IFS=$'\\n'\n"
                      "    COMPREPLY+=($(compgen -f -- \"$token\"))\n"
                      "    case ${COMPREPLY[0]-} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
                      "}\n"
                      "complete -o filenames -F _anneal anneal\n");
}

static void zsh_key(an_text *out, const an_command *c, const an_config_field *f)
{
    (void)c;
    an_text_puts(out, " ");
    char text[400];
    snprintf(text, sizeof text, "%s:%s", f->name, f->doc);
    put_quoted(out, text);
}

static void zsh_values(an_text *out, const an_command *c, const an_config_field *f)
{
    if (!has_values(f)) return;
    an_text_printf(out, "        %s:%s) compadd -- ", c->name, f->name);
    put_values(out, f);
    an_text_puts(out, "; return ;;\n");
}

static void zsh(an_text *out)
{
    an_text_puts(out, "#compdef anneal\n# Completion of anneal for zsh, made by: anneal help --format zsh\n"
                      "_anneal() {\n    local -a commands keys presets\n    if (( CURRENT == 2 )); then\n"
                      "        commands=(");
    for (size_t i = 0; i < an_n_commands; i++) {
        char text[400];
        snprintf(text, sizeof text, "%s:%s", an_commands[i].name, an_commands[i].summary);
        an_text_puts(out, " ");
        put_quoted(out, text);
    }
    an_text_puts(out, ")\n        _describe command commands\n        return\n    fi\n    case $words[2] in\n");
    for (size_t i = 0; i < an_n_commands; i++) {
        const an_command *c = &an_commands[i];
        an_text_printf(out, "    %s)\n        keys=(", c->name);
        each_key(out, c, zsh_key);
        an_text_puts(out, ")\n        presets=(");
        if (takes_preset(c)) put_presets(out, " ");
        put_literals(out, c, " ");
        if (strcmp(c->name, "help") == 0) put_commands(out);
        an_text_printf(out, "%s)\n        ;;\n", c->json ? " --json --quiet" : " --quiet");
    }
    an_text_puts(
        out,
        "    esac\n    if [[ $words[CURRENT] == *=* ]]; then\n"
        "        local key=${${words[CURRENT]%%=*}#--}\n        compset -P '*='\n        case $words[2]:$key in\n");
    for (size_t i = 0; i < an_n_commands; i++) each_key(out, &an_commands[i], zsh_values);
    an_text_puts(out, "        esac\n        _files\n        return\n    fi\n    compset -P '--'\n"
                      "    _describe -t settings setting keys -S '='\n    compadd -- $presets\n    _files\n}\n"
                      "_anneal \"$@\"\n");
}

static void fish_key(an_text *out, const an_command *c, const an_config_field *f)
{
    an_text_printf(out, "complete -c anneal -n '__fish_seen_subcommand_from %s' -l %s ", c->name, f->name);
    if (has_values(f)) {
        an_text_puts(out, "-x -a '");
        put_values(out, f);
        an_text_puts(out, "' ");
    } else {
        an_text_puts(out, "-r ");
    }
    an_text_puts(out, "-d ");
    put_quoted(out, f->doc);
    an_text_puts(out, "\n");
}

static void fish(an_text *out)
{
    an_text_puts(out, "# Completion of anneal for fish, made by: anneal help --format fish\n");
    for (size_t i = 0; i < an_n_commands; i++) {
        const an_command *c = &an_commands[i];
        an_text_printf(out, "complete -c anneal -n __fish_use_subcommand -a %s -d ", c->name);
        put_quoted(out, c->summary);
        an_text_puts(out, "\n");
        an_text_printf(out, "complete -c anneal -n '__fish_seen_subcommand_from %s' -a '", c->name);
        if (takes_preset(c)) put_presets(out, " ");
        put_literals(out, c, " ");
        if (strcmp(c->name, "help") == 0) put_commands(out);
        an_text_puts(out, "'\n");
        if (c->json)
            an_text_printf(
                out, "complete -c anneal -n '__fish_seen_subcommand_from %s' -l json -d 'one line of JSON'\n", c->name);
        each_key(out, c, fish_key);
    }
    an_text_puts(out, "complete -c anneal -l quiet -d 'nothing on the standard error but errors'\n");
}

void an_completions(const char *format, an_text *out)
{
    if (strcmp(format, "man") == 0) man(out);
    if (strcmp(format, "bash") == 0) bash(out);
    if (strcmp(format, "zsh") == 0) zsh(out);
    if (strcmp(format, "fish") == 0) fish(out);
}
