/* facts.h: the facts about this machine (base/os_facts.h) for the programs above the public headers: doctor, logbook,
 * warnings about slow mounts. */
#ifndef AN_IO_FACTS_H
#define AN_IO_FACTS_H

#include "base/os_facts.h"

#endif
