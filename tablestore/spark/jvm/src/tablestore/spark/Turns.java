package tablestore.spark;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Lets the statements of this process that have lost a race for a table repeat their work one after the other.
 *
 * <p>All that begin at once read the same version, and only one of them can commit: of six clients that change one row,
 * five would do their work for nothing each time. Nothing depends on the order: a statement that has waited too long
 * goes on, and so do those of other processes, and then the commit decides as always.
 */
final class Turns {
  private static final int LONGEST_WAIT_S = 30;

  /** Tables share a lock if their hashes say so. It is fair: who waits longest is next. */
  private static final Lock[] LOCKS = new Lock[64];

  static {
    for (int number = 0; number < LOCKS.length; number++) {
      LOCKS[number] = new ReentrantLock(true);
    }
  }

  private Turns() {}

  /** A turn, which ends when it is closed. */
  interface Turn extends AutoCloseable {
    @Override
    void close();
  }

  /** A turn that nobody has to wait for. */
  static final Turn NONE = () -> {};

  /** Waits for the turn of a table; a statement that is cancelled meanwhile has none, and stops at its next job. */
  static Turn of(String table) {
    Lock lock = LOCKS[Math.floorMod(table.hashCode(), LOCKS.length)];
    try {
      return lock.tryLock(LONGEST_WAIT_S, TimeUnit.SECONDS) ? lock::unlock : NONE;
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
      return NONE;
    }
  }
}
