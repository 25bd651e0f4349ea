// Locks and threads of the operating system by pthread alone: std::mutex and std::thread would need a C++ library to link with, which
// the ziglang wheel first has to build, for minutes.
#pragma once
#include <pthread.h>

struct Mutex {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};

struct Lock {
  Mutex& held;
  explicit Lock(Mutex& mutex) : held(mutex) { pthread_mutex_lock(&held.mutex); }
  ~Lock() { pthread_mutex_unlock(&held.mutex); }
  Lock(const Lock&) = delete;
};
