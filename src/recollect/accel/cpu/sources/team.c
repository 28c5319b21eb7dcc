/* Divide work among the threads that torch itself computes with. `share`, which does one thread's part of some work, and a
   Call that has `threads`, precede this text. `parallel` is the entry of torch's OpenMP, and it may start fewer than were
   requested. */

typedef int Ask(void);
typedef void Parallel(void (*)(void *), void *, unsigned, unsigned);
typedef struct {
  const Call *call;
  int64_t work;
  Ask *number, *count;
} Team;
static void one_of_many(void *team_) {
  const Team *team = team_;
  for (int64_t i = team->number(); i < team->call->threads; i += team->count()) share(team->call, team->work, i);
}
void share_all(const Call *call, int64_t work, Parallel *parallel, Ask *number, Ask *count) {
  Team team = {call, work, number, count};
  parallel(one_of_many, &team, (unsigned)call->threads, 0);
}
