package tableside.state;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Pools of daemon threads, which end when they have had nothing to do for a while. */
final class Threads {
  private static final long IDLE_S = 30;

  private Threads() {}

  /** A pool in which what is given waits for one of so many threads. */
  static ExecutorService waiting(String name, int threadsMax) {
    return pool(name, threadsMax, threadsMax, new LinkedBlockingQueue<>());
  }

  /** A pool that refuses what is given where none of so many threads is free. */
  static ExecutorService refusing(String name, int threadsMax) {
    return pool(name, 0, threadsMax, new SynchronousQueue<>());
  }

  private static ExecutorService pool(String name, int threads, int threadsMax, BlockingQueue<Runnable> queue) {
    ThreadPoolExecutor pool =
        new ThreadPoolExecutor(threads, threadsMax, IDLE_S, TimeUnit.SECONDS, queue, named("tableside-state-" + name));
    pool.allowCoreThreadTimeOut(true);
    return pool;
  }

  private static ThreadFactory named(String name) {
    AtomicInteger number = new AtomicInteger();
    return task -> {
      Thread thread = new Thread(null, task, name + "-" + number.incrementAndGet(), 0, false);
      thread.setDaemon(true);
      // Not that of the task that happens to be first: it would hold what the task has loaded.
      thread.setContextClassLoader(Threads.class.getClassLoader());
      return thread;
    };
  }
}
