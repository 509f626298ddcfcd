/* A library like any other: no entry symbol. Its texts name the sanitizers' functions, as libkeel's
 * do; it is built with no sanitizer. */
const char *answer(int which);
const char *answer(int which) { return which == 0 ? "__asan_init" : "__tsan_init"; }
