/* A model server for tests of containers: static, so that an image needs nothing else.
 *
 * GET /ping answers 200. POST /invocations does the one thing its body asks for:
 *   env NAME | read PATH | write PATH | connect ADDRESS PORT | capabilities | eat MIB | exit CODE
 * and answers 200 with what came of it; POST /adapters takes an adapter whose adapter_config.json it
 * can read; any other body is answered with 400, or with 500 where
 * BROKEN is set. A SIGTERM ends it with code 0, unless STUBBORN is set.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_term(int number) {
  (void)number;
  if (write(1, "got SIGTERM\n", 12)) {}
  if (!getenv("STUBBORN")) _exit(0);
}

static int listener(int port) {
  int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 64)) {
    perror("listen");
    exit(9);
  }
  return s;
}

static void file(const char *path, int flags, char *out, size_t room) {
  int f = open(path, flags, 0644);
  ssize_t n = f < 0 ? -1 : flags == O_RDONLY ? read(f, out, room - 1) : 0;
  if (n < 0) snprintf(out, room, "error: %s", strerror(errno));
  else if (flags != O_RDONLY) snprintf(out, room, "written");
  else out[n] = 0;
}

static void call(const char *address, int port, char *out, size_t room) {
  int s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, address, &at.sin_addr);
  int failed = connect(s, (struct sockaddr *)&at, sizeof at);
  snprintf(out, room, "%s", failed ? strerror(errno) : "connected");
  close(s);
}

static void capabilities(char *out, size_t room) {
  char line[256];
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, "CapEff:", 7) || !strncmp(line, "NoNewPrivs:", 11))
      strncat(out, line, room - strlen(out) - 1);
  fclose(status);
}

static int answer(char *body, char *out, size_t room) {
  char word[512];
  int number;
  out[0] = 0;
  if (sscanf(body, "env %511s", word) == 1) snprintf(out, room, "%s", getenv(word) ? getenv(word) : "(unset)");
  else if (sscanf(body, "read %511s", word) == 1) file(word, O_RDONLY, out, room);
  else if (sscanf(body, "write %511s", word) == 1) file(word, O_WRONLY | O_CREAT, out, room);
  else if (sscanf(body, "connect %511s %d", word, &number) == 2) call(word, number, out, room);
  else if (!strncmp(body, "capabilities", 12)) capabilities(out, room);
  else if (sscanf(body, "eat %d", &number) == 1) {
    size_t bytes = (size_t)number << 20;
    volatile char *eaten = malloc(bytes); /* volatile: else the compiler eats nothing */
    for (size_t at = 0; eaten && at < bytes; at += 4096) eaten[at] = 1;
    snprintf(out, room, "eaten");
  } else if (sscanf(body, "exit %d", &number) == 1) exit(number);
  else return getenv("BROKEN") ? 500 : 400;
  return 200;
}

static int adapter(const char *request, char *out, size_t room) {
  char path[1024], coded[1024];
  const char *src = strstr(request, "&src=");
  size_t at = 0;
  if (!src || sscanf(src + 5, "%1000[^ &]", coded) != 1) return 400;
  for (char *c = coded; *c; c++) {
    int byte = *c;
    if (*c == '%' && sscanf(c + 1, "%2x", &byte) == 1) c += 2;
    path[at++] = (char)byte;
  }
  strcpy(path + at, "/adapter_config.json");
  file(path, O_RDONLY, out, room);
  printf("adapter at %s: %s\n", path, out);
  fflush(stdout);
  return strncmp(out, "error", 5) ? 200 : 400;
}

int main(int count, char **arguments) {
  static char request[1 << 16], out[1 << 16];
  const char *port = getenv("SAGEMAKER_BIND_TO_PORT");
  int s = listener(port ? atoi(port) : 8080);
  signal(SIGTERM, on_term);
  signal(SIGPIPE, SIG_IGN);
  printf("started with %s as %d\n", count > 1 ? arguments[1] : "nothing", getuid());
  fflush(stdout);
  for (;;) {
    int c = accept(s, NULL, NULL);
    size_t have = 0;
    char *end = NULL;
    while (c >= 0 && have < sizeof request - 1) {
      ssize_t n = read(c, request + have, sizeof request - 1 - have);
      if (n <= 0) break;
      request[have += n] = 0;
      char *length = strcasestr(request, "content-length:");
      end = strstr(request, "\r\n\r\n");
      if (end && have >= (size_t)(end + 4 - request) + (length ? atoi(length + 15) : 0)) break;
    }
    if (!end) { close(c); continue; }
    int status = 200;
    out[0] = 0;
    if (!strncmp(request, "POST /adapters", 14)) status = adapter(request, out, sizeof out);
    else if (!strncmp(request, "POST", 4)) status = answer(end + 4, out, sizeof out);
    dprintf(c, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status, strlen(out), out);
    close(c);
  }
}
