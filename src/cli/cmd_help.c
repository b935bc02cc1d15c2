/* cmd_help.c: the list of commands, and the settings of one. */
#include "cli/cli.h"
#include <string.h>

typedef struct help_values {
    char format[AN_CONFIG_TEXT_BYTES];
} help_values;

static const an_config_field fields[] = {
    {"format", AN_CONFIG_TEXT, offsetof(help_values, format), "text", 0, 0, "text|man|bash|zsh|fish",
     "text for people, commands and settings for a manual page, or a shell's completion"},
};
const an_config an_help_keys = {.fields = fields, .n = AN_COUNT(fields)};

static void put_table(void *arg, const char *owner, const an_config *keys)
{
    an_text *out = arg;
    if (*owner) an_text_printf(out, "\nSettings of %s:\n", owner);
    an_config_help(keys, out);
}

void an_command_details(const an_command *c, an_text *out)
{
    an_text_puts(out, c->details);
    if (c->put_details) c->put_details(out);
}

void an_command_help(const an_command *c)
{
    an_text out = {0};
    an_text_printf(&out, "anneal %s\n    %s\n", c->usage, c->summary);
    if (c->details[0] || c->put_details) an_text_puts(&out, "\n");
    an_command_details(c, &out);
    const an_model *model;
    const an_preset *p;
    if (c->run_keys) an_text_puts(&out, "\nPresets:\n");
    for (size_t i = 0; c->run_keys && (p = an_preset_at(i, &model)) != NULL; i++)
        an_text_printf(&out, "  %-22s%s\n", p->name, p->summary);
    if (c->keys || c->run_keys) an_text_puts(&out, "\nSettings and their defaults:\n");
    an_command_each_table(c, put_table, &out);
    if (c->json) an_text_puts(&out, "  --json    one line of JSON on stdout\n");
    an_print_folded(stdout, out.data ? out.data : "");
    an_text_free(&out);
}

static void list_commands(void)
{
    an_text out = {0};
    an_text_printf(&out, "anneal %s: plans, trains and runs neural networks, to the same bits again\n\n", AN_VERSION);
    for (size_t i = 0; i < an_n_commands; i++)
        an_text_printf(&out, "  anneal %-10s  %s\n", an_commands[i].name, an_commands[i].summary);
    an_text_puts(&out, "\nBegin with\n  anneal train demo out=run && anneal sample run\nanneal help COMMAND lists its "
                       "arguments and settings.\nExit codes: 0 done, 1 usage, 2 environment, 3 numeric, 130 "
                       "interrupted.\n");
    an_print_folded(stdout, out.data ? out.data : "");
    an_text_free(&out);
}

an_status an_cmd_help(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    help_values v;
    AN_TRY(an_config_defaults(err, &an_help_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_help_keys, &v}, 1));
    if (strcmp(v.format, "text") != 0) {
        an_text out = {0};
        an_completions(v.format, &out);
        if (out.len) out.data[--out.len] = '\0'; /* an_print_line adds the newline */
        return an_print_line(err, &out);
    }
    if (args->n_words == 1) {
        const an_command *c = an_command_find(args->words[0]);
        if (!c) return an_command_unknown(err, args->words[0]);
        an_command_help(c);
        return AN_OK;
    }
    list_commands();
    return AN_OK;
}
