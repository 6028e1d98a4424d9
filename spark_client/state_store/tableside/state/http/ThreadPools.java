package tableside.state.http;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Creates pools of daemon threads that end when they are idle. */
final class ThreadPools {
  private static final long IDLE_S = 30;

  private ThreadPools() {}

  /** Creates a pool that queues tasks while all `threadsMax` threads are busy. */
  static ExecutorService queueing(String name, int threadsMax) {
    return pool(name, threadsMax, threadsMax, new LinkedBlockingQueue<>());
  }

  /** Creates a pool that rejects tasks while all `threadsMax` threads are busy. */
  static ExecutorService rejecting(String name, int threadsMax) {
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
      // The class loader of the first task would keep the classes of that task alive.
      thread.setContextClassLoader(ThreadPools.class.getClassLoader());
      return thread;
    };
  }
}
