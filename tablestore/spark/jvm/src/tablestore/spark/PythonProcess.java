package tablestore.spark;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.apache.spark.SparkConf;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.sql.classic.SparkSession;

/** A Python process for JVMs without a Python driver: the spark-sql shell, the Thrift server, Spark Connect. */
final class PythonProcess {
  private static final Duration START = Duration.ofSeconds(60);
  private static Process process;
  private static Py4JServer server;
  private static int started;

  private PythonProcess() {}

  /** Starts the process, which ends with this JVM: it reads its standard input, and ends at that input's end. */
  static synchronized void start() {
    if (process != null && process.isAlive()) {
      return; // another thread has started it, and waits for it, too
    }
    SparkConf conf = SparkSession.active().sparkContext().getConf();
    if (server == null) {
      server = new Py4JServer(conf);
      server.start();
    }
    String python = pythonOf(conf);
    String number = Integer.toString(++started);
    ProcessBuilder builder = new ProcessBuilder(List.of(python, "-m", "tablestore.spark.sql.process", number));
    builder.environment().put("PYSPARK_GATEWAY_PORT", Integer.toString(server.getListeningPort()));
    builder.environment().put("PYSPARK_GATEWAY_SECRET", server.secret());
    builder.environment().put("PYSPARK_PYTHON", python);
    builder.redirectOutput(ProcessBuilder.Redirect.INHERIT).redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      process = builder.start();
    } catch (IOException e) {
      throw Refusals.plain(
          "spark-no-python",
          "Tablestore's Python side did not start: " + e.getMessage() + ". Set spark.pyspark.driver.python or "
              + "PYSPARK_PYTHON to a Python that has the package lakehouse-tablestore");
    }
  }

  /** Ends the process, if there is one. */
  static synchronized void stop() {
    if (process != null) {
      process.destroyForcibly();
      process = null;
    }
  }

  /** Waits on a monitor, which the caller holds, until the process has registered itself. */
  static void awaitRegistration(Object monitor, BooleanSupplier registered) {
    long end = System.nanoTime() + START.toNanos();
    while (!registered.getAsBoolean()) {
      long left = (end - System.nanoTime()) / 1_000_000;
      if (!isAlive() || left <= 0) {
        stop();
        throw Refusals.plain(
            "spark-no-python",
            "Tablestore's Python side did not start within " + START.toSeconds() + " s: see what it printed. "
                + "spark.pyspark.driver.python or PYSPARK_PYTHON has to be a Python with lakehouse-tablestore");
      }
      try {
        monitor.wait(Math.min(left, 100));
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw Refusals.plain("spark-cancelled", "interrupted while Tablestore's Python side started");
      }
    }
  }

  private static synchronized boolean isAlive() {
    return process != null && process.isAlive();
  }

  private static String pythonOf(SparkConf conf) {
    for (String name : List.of("spark.pyspark.driver.python", "spark.pyspark.python")) {
      if (conf.contains(name)) {
        return conf.get(name);
      }
    }
    String set = System.getenv("PYSPARK_DRIVER_PYTHON");
    set = set != null ? set : System.getenv("PYSPARK_PYTHON");
    return set != null ? set : "python3";
  }
}
