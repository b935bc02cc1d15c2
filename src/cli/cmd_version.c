/* cmd_version.c: which anneal this is. */
#include "cli/cli.h"

an_status an_cmd_version(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    an_text line = {0};
    if (args->json)
        an_text_printf(&line, "{\"anneal\":\"%s\",\"commit\":\"%s\",\"compiler\":\"%s\"}", AN_VERSION, an_commit,
                       AN_COMPILER);
    else
        an_text_printf(&line, "anneal %s%s%s (%s)", AN_VERSION, *an_commit ? " " : "", an_commit, AN_COMPILER);
    return an_print_line(err, &line);
}
