/* example_chat.c: see example_chat.h. */
#include "io/data/example_chat.h"

const char an_example_chat[] =
    "[{\"id\":\"1\",\"conversations\":["
    "{\"from\":\"human\",\"value\":\"Hello! Who are you?\"},"
    "{\"from\":\"gpt\",\"value\":\"Hello! I am a very small language model. I know five conversations.\"}]},"
    "{\"id\":\"2\",\"conversations\":["
    "{\"from\":\"human\",\"value\":\"What is the capital of France?\"},"
    "{\"from\":\"gpt\",\"value\":\"The capital of France is Paris.\"},"
    "{\"from\":\"human\",\"value\":\"And which river flows through it?\"},"
    "{\"from\":\"gpt\",\"value\":\"The Seine flows through Paris.\"}]},"
    "{\"id\":\"3\",\"conversations\":["
    "{\"from\":\"human\",\"value\":\"How do I boil an egg?\"},"
    "{\"from\":\"gpt\",\"value\":\"Put the egg into boiling water. Wait six minutes for a soft egg, ten for a hard "
    "one.\"}]},"
    "{\"id\":\"4\",\"conversations\":["
    "{\"from\":\"human\",\"value\":\"Why is the sky blue?\"},"
    "{\"from\":\"gpt\",\"value\":\"Air scatters short waves of light more than long ones, and blue is short.\"}]},"
    "{\"id\":\"5\",\"conversations\":["
    "{\"from\":\"human\",\"value\":\"Thank you for your help.\"},"
    "{\"from\":\"gpt\",\"value\":\"You are welcome. Ask me again whenever you like.\"}]}]";
