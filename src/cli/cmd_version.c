/* cmd_version.c: which anneal this is. */
#include "cli/cli.h"

an_status an_cmd_version(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    an_text line = {0};
    an_text_printf(&line, args->json ? "{\"anneal\":\"%s\",\"compiler\":\"%s\"}" : "anneal %s (%s)", AN_VERSION,
                   __VERSION__);
    return an_print_line(err, &line);
}
