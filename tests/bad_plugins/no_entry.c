/* A library that is not a plugin: it has no entry symbol. It contains the names of the
 * sanitizers' functions as text, like libkeel, but was not built with a sanitizer. */
const char *answer(int which);
const char *answer(int which) { return which == 0 ? "__asan_init" : "__tsan_init"; }
