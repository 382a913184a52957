// The micro-benchmarks in Java: virtual threads where there are any (21 and later), platform threads elsewhere.
// Bench CASE prints one number, or "n/a: why".
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.ReentrantLock;

public class Bench {
    interface Body { void run() throws Exception; }

    static final Method VIRTUAL = virtual();
    static long count;

    static Method virtual() {
        try {
            return Thread.class.getMethod("startVirtualThread", Runnable.class);
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    static Thread go(Body body) throws Exception {
        Runnable task = () -> {
            try {
                body.run();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        };
        if (VIRTUAL != null) return (Thread) VIRTUAL.invoke(null, task);
        Thread thread = new Thread(task);
        thread.start();
        return thread;
    }

    static void each(int tasks, Body body) throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < tasks; i++) all.add(go(body));
        for (Thread thread : all) thread.join();
    }

    /** Platform threads get less to do. */
    static int scaled(int virtual, int platform) {
        return VIRTUAL != null ? virtual : platform;
    }

    static double nsPer(long start, int n) {
        return (System.nanoTime() - start) / (double) n;
    }

    static double rss() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) return Double.parseDouble(line.trim().split("\\s+")[1]) * 1024;
        }
        return 0;
    }

    /** The same pseudo-random stream as everybody's. */
    static long mix(long i) {
        long z = (i + 1) * 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    static double spawn(int n) throws Exception {
        int batch = scaled(1000, 100);
        long start = System.nanoTime();
        for (int i = 0; i < n / batch; i++) each(batch, () -> {});
        return nsPer(start, n);
    }

    static double yields(int tasks, int n) throws Exception {
        long start = System.nanoTime();
        each(tasks, () -> { for (int i = 0; i < n / tasks; i++) Thread.yield(); });
        return nsPer(start, n);
    }

    static double pingpong(int n) throws Exception {
        BlockingQueue<Integer> to = new SynchronousQueue<>(), back = new SynchronousQueue<>();
        long start = System.nanoTime();
        Thread pong = go(() -> { for (int i = 0; i < n; i++) back.put(to.take()); });
        Thread ping = go(() -> { for (int i = 0; i < n; i++) { to.put(i); back.take(); } });
        ping.join();
        pong.join();
        return nsPer(start, n);
    }

    static double channel(int n) throws Exception {
        BlockingQueue<Integer> queue = new ArrayBlockingQueue<>(128);
        long start = System.nanoTime();
        Thread producer = go(() -> { for (int i = 0; i < n; i++) queue.put(i); });
        Thread consumer = go(() -> { for (int i = 0; i < n; i++) queue.take(); });
        producer.join();
        consumer.join();
        return nsPer(start, n);
    }

    static double mutex(int tasks, int times) throws Exception {
        ReentrantLock lock = new ReentrantLock();
        long start = System.nanoTime();
        each(tasks, () -> {
            for (int i = 0; i < times; i++) {
                lock.lock();
                count++;
                lock.unlock();
            }
        });
        if (count != (long) tasks * times) throw new IllegalStateException("lost an update");
        return nsPer(start, tasks * times);
    }

    static double timers(int n, int longestMs) throws Exception {
        List<Thread> all = new ArrayList<>();
        long start = System.nanoTime();
        for (int i = 0; i < n; i++) {
            long ns = Long.remainderUnsigned(mix(i), longestMs * 1000L) * 1000;
            all.add(go(() -> Thread.sleep(ns / 1_000_000, (int) (ns % 1_000_000))));
        }
        for (Thread thread : all) thread.join();
        return (System.nanoTime() - start) / 1e6 - longestMs;
    }

    static double parked(int n) throws Exception {
        CountDownLatch started = new CountDownLatch(n), gate = new CountDownLatch(1);
        List<Thread> all = new ArrayList<>();
        double before = rss();
        for (int i = 0; i < n; i++) all.add(go(() -> { started.countDown(); gate.await(); }));
        started.await();
        Thread.sleep(100);
        double used = rss() - before;
        gate.countDown();
        for (Thread thread : all) thread.join();
        return used / n;
    }

    static volatile boolean stop;

    /** A sleeper among threads that compute: the 99th percentile of its lateness, in us. */
    static double wakeup(int hogs, int runMs, long napNs) throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < hogs; i++) all.add(go(() -> { while (!stop) {} }));
        List<Double> late = new ArrayList<>();
        long end = System.nanoTime() + runMs * 1_000_000L;
        Thread sleeper = go(() -> {
            while (System.nanoTime() < end) {
                long due = System.nanoTime() + napNs;
                Thread.sleep(napNs / 1_000_000, (int) (napNs % 1_000_000));
                late.add((System.nanoTime() - due) / 1e3);
            }
        });
        Thread.sleep(runMs); // on a platform thread: virtual ones that compute keep all carriers
        stop = true;
        sleeper.join();
        for (Thread thread : all) thread.join();
        late.sort(null);
        return late.isEmpty() ? runMs * 1e3 : late.get(late.size() * 99 / 100);
    }

    public static void main(String[] args) throws Exception {
        boolean many = VIRTUAL != null;
        switch (args[0]) {
            case "spawn": System.out.println(spawn(scaled(200_000, 2_000))); break;
            case "yield": System.out.println(yields(8, scaled(1_000_000, 100_000))); break;
            case "pingpong": System.out.println(pingpong(scaled(100_000, 10_000))); break;
            case "channel": System.out.println(channel(scaled(1_000_000, 300_000))); break;
            case "mutex": System.out.println(mutex(8, scaled(50_000, 20_000))); break;
            case "timers":
                if (many) System.out.println(timers(100_000, 200));
                else System.out.println("n/a: a platform thread for each of 100,000 timers");
                break;
            case "memory": System.out.println(parked(scaled(100_000, 2_000))); break;
            case "wakeup": case "wakeup-priority": case "wakeup-deadline":
                System.out.println(wakeup(8, 700, 1_000_000));
                break;
            default: System.out.println("n/a: Java has no select");
        }
    }
}
