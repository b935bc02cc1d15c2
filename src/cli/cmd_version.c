/* cmd_version.c: which anneal this is. */
#include "cli/cli.h"

/* clang has its name in __VERSION__, gcc has not. */
#ifdef __clang__
#define COMPILER ""
#else
#define COMPILER "gcc "
#endif

an_status an_cmd_version(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    an_text line = {0};
    if (args->json)
        an_text_printf(&line, "{\"anneal\":\"%s\",\"commit\":\"%s\",\"compiler\":\"%s\"}", AN_VERSION, an_commit,
                       COMPILER __VERSION__);
    else
        an_text_printf(&line, "anneal %s%s%s (%s)", AN_VERSION, *an_commit ? " " : "", an_commit, COMPILER __VERSION__);
    return an_print_line(err, &line);
}
