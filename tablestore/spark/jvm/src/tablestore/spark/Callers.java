package tablestore.spark;

/** Keeps plans apart that are alike, by the function of Spark that has made them and analyzes them before it returns. */
final class Callers {
  private Callers() {}

  /** Returns whether a function is among the callers of this thread. */
  static boolean has(String className, String method) {
    return StackWalker.getInstance()
        .walk(
            frames ->
                frames.anyMatch(
                    frame -> frame.getClassName().equals(className) && frame.getMethodName().equals(method)));
  }
}
