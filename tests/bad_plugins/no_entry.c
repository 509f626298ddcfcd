/* A library like any other: no entry symbol. */
int answer(void);
int answer(void) { return 42; }
