import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Lock;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Drives Apache's Java client from the command line: COMMAND key=value ... Prints one JSON object a line for each result or
 * message and a last one with "done". Exit status 0 when the command reached what it was asked for, 1 when it did not, 2 on an error.
 *
 * "serve" runs many commands in one process: it reads lines of ID, COMMAND and pairs, parted by tabs, runs each in a thread of its own, marks
 * what it prints by "step": ID and ends it with "exit". The line ID, "stop" ends the waiting of a consumer. It ends with its standard input.
 */
public final class Probe {
    static final PrintStream OUT = System.out;

    private static final String HELP = String.join("\n",
        "produce  names= topic= [count=1 size= body= tag= keys= delay= queue= shard= mode=sync|async|oneway|batch group= unique=true ak= sk= compress= props=k:v,k:v instance= stay=SECONDS trace=true namespace=]",
        "transact names= topic= [count=1 outcome=commit|rollback|unknown check=commit|rollback checks=MESSAGES seconds=120]",
        "consume  names= topic= group= [expect=1 seconds=120 model=CLUSTERING|BROADCASTING orderly=false tag=* sql= fail=0 max= from=first|last threads=4 settle=0 work=MILLISECONDS instance= trace=true namespace=",
        "         strategy=AVG|AVG_BY_CIRCLE|CONSISTENT_HASH]",
        "pull     names= topic= group= [tag=* max=1000]        every queue from its first offset",
        "offsets  names= topic= group= [time=]                 lowest, highest, searched and committed offsets of every queue",
        "survey   names= group= queues=topic:count,... via=topic [broker=broker-a]      all that the broker serves, see Survey",
        "query    names= topic= key= [begin=0 end=now max=32]",
        "view     names= topic= id=",
        "rate     names= topic= [count=100000 size=1024 threads=1 mode=sync|async|oneway window=32]",
        "latency  names= topic= [count=2000 size=1024 pause=1]  producer to push consumer in one process",
        "litepull, request, reply: see Probe46 (release 4.6 and newer)",
        "serve                                                  many commands, from standard input");

    private static final Map<String, Probe> RUNNING = new ConcurrentHashMap<>();

    private final String step;
    private final Map<String, String> options = new HashMap<>();
    private volatile boolean stopped;

    boolean stopped() {
        return stopped;
    }

    /** `step` marks the lines that this command prints; null for the only one of its process. */
    private Probe(String step, String[] pairs) {
        this.step = step;
        for (String pair : pairs) {
            int at = pair.indexOf('=');
            options.put(pair.substring(0, at), pair.substring(at + 1));
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            OUT.println(HELP);
            System.exit(2);
        }
        int status = 0;
        if (arguments[0].equals("serve")) {
            serve();
        } else {
            status = new Probe(null, Arrays.copyOfRange(arguments, 1, arguments.length)).run(arguments[0]);
        }
        OUT.flush();
        Runtime.getRuntime().halt(status);
    }

    private static void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            String id = words[0];
            if (words[1].equals("stop")) {
                Probe running = RUNNING.get(id);
                if (running != null) {
                    running.stopped = true;
                }
                continue;
            }
            Probe probe = new Probe(id, Arrays.copyOfRange(words, 2, words.length));
            RUNNING.put(id, probe);
            new Thread(() -> {
                int status = probe.run(words[1]);
                RUNNING.remove(id);
                probe.print("exit", status);
            }).start();
        }
    }

    private int run(String command) {
        try {
            return perform(command) ? 0 : 1;
        } catch (Throwable failure) {
            print("error", failure.getClass().getName(), "text", String.valueOf(failure.getMessage()));
            return 2;
        }
    }

    private boolean perform(String command) throws Exception {
        switch (command) {
            case "produce": return produce();
            case "transact": return transact();
            case "consume": return consume();
            case "pull": return pull();
            case "offsets": return offsets();
            case "survey": return Survey.run(this, pullConsumer());
            case "query": return query();
            case "view": return view();
            case "rate": return rate();
            case "latency": return latency();
            default:
                return later(command);
        }
    }

    /** Commands of a class that cannot be compiled against release 4.4. */
    private boolean later(String command) throws Exception {
        try {
            return (Boolean) Class.forName("Probe46").getMethod("run", Probe.class, String.class).invoke(null, this, command);
        } catch (InvocationTargetException failure) {
            throw failure.getCause() instanceof Exception ? (Exception) failure.getCause() : failure;
        }
    }

    // --- options and output ---

    String text(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return options.containsKey(name) ? Integer.parseInt(options.get(name)) : otherwise;
    }

    String need(String name) {
        if (!options.containsKey(name)) {
            throw new IllegalArgumentException("missing " + name + "=");
        }
        return options.get(name);
    }

    RPCHook hook() {
        return options.containsKey("ak") ? new AclClientRPCHook(new SessionCredentials(options.get("ak"), need("sk"))) : null;
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map) {
            StringBuilder out = new StringBuilder("{");
            for (Map.Entry<?, ?> entry : new TreeMap<>((Map<?, ?>) value).entrySet()) {
                out.append(out.length() > 1 ? ", " : "").append(json(String.valueOf(entry.getKey()))).append(": ").append(json(entry.getValue()));
            }
            return out.append("}").toString();
        }
        StringBuilder out = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 32 || c > 126) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append("\"").toString();
    }

    void print(Object... pairs) {
        StringBuilder out = new StringBuilder(step == null ? "{" : "{\"step\": " + step + (pairs.length > 0 ? ", " : ""));
        for (int i = 0; i < pairs.length; i += 2) {
            out.append(i > 0 ? ", " : "").append(json(pairs[i])).append(": ").append(json(pairs[i + 1]));
        }
        String line = out.append("}").toString();
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    void print(MessageExt message) {
        print(fields(message));
    }

    private static Object[] fields(MessageExt message) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        return new Object[] {"topic", message.getTopic(), "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(),
            "physicalOffset", message.getCommitLogOffset(), "msgId", message.getMsgId(), "tags", message.getTags(), "keys", message.getKeys(),
            "reconsumeTimes", message.getReconsumeTimes(), "sysFlag", message.getSysFlag(), "flag", message.getFlag(),
            "bornTimestamp", message.getBornTimestamp(), "storeTimestamp", message.getStoreTimestamp(),
            "bornHost", String.valueOf(message.getBornHost()), "storeHost", String.valueOf(message.getStoreHost()),
            "bodyCRC", message.getBodyCRC(), "storeSize", message.getStoreSize(), "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "size", body.length, "sha1", sha1(body), "body", body.length > 256 ? "" : new String(body, StandardCharsets.UTF_8), "properties", message.getProperties()};
    }

    private static String sha1(byte[] bytes) {
        try {
            return new java.math.BigInteger(1, java.security.MessageDigest.getInstance("SHA-1").digest(bytes)).add(java.math.BigInteger.ONE.shiftLeft(160))
                .toString(16).substring(1);
        } catch (java.security.NoSuchAlgorithmException failure) {
            throw new IllegalStateException(failure);
        }
    }

    void print(SendResult result) {
        MessageQueue queue = result.getMessageQueue();
        print("status", result.getSendStatus(), "msgId", result.getMsgId(), "offsetMsgId", result.getOffsetMsgId(), "broker", queue.getBrokerName(),
            "queueId", queue.getQueueId(), "queueOffset", result.getQueueOffset(), "transactionId", result.getTransactionId(), "region", result.getRegionId());
    }

    private static void setEnum(Object target, String setter, String value) throws Exception {
        for (Method method : target.getClass().getMethods()) {  // the enum moved to another package in release 5
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                for (Object constant : method.getParameterTypes()[0].getEnumConstants()) {
                    if (((Enum<?>) constant).name().equals(value)) {
                        method.invoke(target, constant);
                        return;
                    }
                }
            }
        }
        throw new IllegalArgumentException("no " + setter + " for " + value);
    }

    // --- messages and producers ---

    /** The alphabet over and over: a body of `size` bytes is a cut of it, which costs next to nothing where rates are measured. */
    private byte[] letters;

    private byte[] body(int index) {
        int size = number("size", 0);
        if (size == 0) {
            return (text("body", "message") + "-" + index).getBytes(StandardCharsets.UTF_8);
        }
        if (letters == null || letters.length != size + 26) {
            byte[] made = new byte[size + 26];
            for (int i = 0; i < made.length; i++) {
                made[i] = (byte) ('a' + i % 26);
            }
            letters = made;
        }
        return Arrays.copyOfRange(letters, index % 26, index % 26 + size);
    }

    /** `tag=a,b` gives messages the tags a, b, a, b ... */
    private String tag(int index) {
        String[] tags = text("tag", "").split(",", -1);
        return tags[index % tags.length];
    }

    Message message(int index) {
        Message message = new Message(need("topic"), tag(index), options.containsKey("keys") ? text("keys", "") + "-" + index : "", body(index));
        if (options.containsKey("delay")) {
            message.setDelayTimeLevel(number("delay", 0));
        }
        if (options.containsKey("props")) {
            for (String pair : text("props", "").split(",")) {
                message.putUserProperty(pair.split(":")[0], pair.split(":")[1].replace("#", String.valueOf(index)));
            }
        }
        return message;
    }

    DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(text("group", "probe-producer"), hook(), options.containsKey("trace"), null);
        configure(producer);
        producer.start();
        return producer;
    }

    /** Everything that the library does every so many seconds is done every second, so that tests need not wait for it. */
    void hurry(ClientConfig client) {
        client.setNamesrvAddr(need("names"));
        if (options.containsKey("namespace")) {
            set(client, "setNamespace", String.class, text("namespace", ""));  // 4.5.1 and newer
        }
        set(client, "setMqClientApiTimeout", int.class, 30_000);  // a busy machine is slow; 4.4 has three seconds
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(1000);
    }

    /**
     * The end of a client, at a time when no heartbeat of it is under way. A broker may take one in behind the farewell, even behind the end
     * of the connection, and counts a member then that is not there, for two minutes.
     */
    static void leave(Object client, Runnable shutdown) throws Exception {
        Lock beating = (Lock) inside(inside(inside(client, "default.*Impl"), "mQClientFactory"), "lockHeartbeat");
        beating.lock();
        try {
            shutdown.run();
        } finally {
            beating.unlock();
        }
    }

    /** What the field with this name holds; the library hides it. */
    private static Object inside(Object owner, String name) throws IllegalAccessException {
        for (Class<?> kind = owner.getClass(); kind != null; kind = kind.getSuperclass()) {
            for (Field field : kind.getDeclaredFields()) {
                if (field.getName().matches(name)) {
                    field.setAccessible(true);
                    return field.get(owner);
                }
            }
        }
        throw new IllegalStateException("no " + name + " in " + owner.getClass());
    }

    /** Return when the brokers have what was sent to them one-way: they have read it when they answer what comes behind it. */
    private void reached(DefaultMQProducer producer) throws Exception {
        for (MessageQueue queue : producer.fetchPublishMessageQueues(need("topic"))) {
            producer.maxOffset(queue);
        }
    }

    /** Call a setter that not every release has. */
    private static void set(Object target, String setter, Class<?> kind, Object value) {
        try {
            target.getClass().getMethod(setter, kind).invoke(target, value);
        } catch (NoSuchMethodException failure) {  // then not
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private void configure(DefaultMQProducer producer) {
        hurry(producer);
        producer.setSendMsgTimeout(number("timeout", 30000));
        producer.setInstanceName(text("instance", "probe-" + System.nanoTime()));
        if (options.containsKey("compress")) {
            producer.setCompressMsgBodyOverHowmuch(number("compress", 4096));
        }
        if (options.containsKey("vip")) {
            producer.setVipChannelEnabled(true);
        }
    }

    private boolean produce() throws Exception {
        DefaultMQProducer producer = producer();
        int count = number("count", 1);
        String mode = text("mode", "sync");
        AtomicInteger accepted = new AtomicInteger();
        if (mode.equals("batch")) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                batch.add(message(i));
            }
            print(producer.send(batch));
            accepted.set(count);
        } else if (mode.equals("oneway")) {
            for (int i = 0; i < count; i++) {
                producer.sendOneway(message(i));
                accepted.incrementAndGet();
            }
            reached(producer);
        } else if (mode.equals("async")) {
            CountDownLatch left = new CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                producer.send(message(i), new SendCallback() {
                    @Override public void onSuccess(SendResult result) {
                        print(result);
                        accepted.incrementAndGet();
                        left.countDown();
                    }

                    @Override public void onException(Throwable failure) {
                        print("failed", failure.toString());
                        left.countDown();
                    }
                });
            }
            left.await(60, TimeUnit.SECONDS);
        } else {
            for (int i = 0; i < count; i++) {
                SendResult result;
                if (options.containsKey("shard")) {
                    int shards = number("shard", 1);
                    result = producer.send(message(i), (queues, sent, argument) -> queues.get((Integer) argument % queues.size()), i % shards);
                } else if (options.containsKey("queue")) {
                    int wanted = number("queue", 0);
                    result = producer.send(message(i), (queues, sent, argument) -> {
                        for (MessageQueue queue : queues) {
                            if (queue.getQueueId() == wanted) {
                                return queue;
                            }
                        }
                        throw new IllegalArgumentException("no queue " + wanted);
                    }, null);
                } else {
                    result = producer.send(message(i));
                }
                print(result);
                accepted.incrementAndGet();
            }
        }
        long until = System.currentTimeMillis() + 1000L * number("stay", 0);
        if (System.currentTimeMillis() < until) {
            print("staying", true);
        }
        while (!stopped && System.currentTimeMillis() < until) {
            Thread.sleep(20);
        }
        leave(producer, producer::shutdown);
        print("done", true, "accepted", accepted.get());
        return accepted.get() == count;
    }

    private boolean transact() throws Exception {
        String outcome = text("outcome", "commit");
        String later = text("check", "commit");
        int count = number("count", 1);
        int expect = number("checks", outcome.equals("unknown") ? count : 0);
        Set<String> asked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = options.containsKey("ak")
            ? new TransactionMQProducer(text("group", "probe-transactions"), hook()) : new TransactionMQProducer(text("group", "probe-transactions"));
        configure(producer);
        producer.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message sent, Object argument) {
                return state(outcome);
            }

            @Override public LocalTransactionState checkLocalTransaction(MessageExt half) {
                print("check", half.getMsgId(), "transactionId", half.getTransactionId(), "body", new String(half.getBody(), StandardCharsets.UTF_8));
                asked.add(String.valueOf(half.getTransactionId()));
                return state(later);
            }
        });
        producer.start();
        for (int i = 0; i < count; i++) {
            print(producer.sendMessageInTransaction(message(i), null));
        }
        if (count > 0) {
            reached(producer);
        }
        long until = System.currentTimeMillis() + 1000L * number("seconds", 120);
        while (asked.size() < expect && !stopped && System.currentTimeMillis() < until) {
            Thread.sleep(50);
        }
        Thread.sleep(500);
        leave(producer, producer::shutdown);
        print("done", true, "checks", asked.size());
        return asked.size() >= expect;
    }

    private static LocalTransactionState state(String name) {
        return name.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE
            : name.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    // --- consumers ---

    private DefaultMQPushConsumer pushConsumer() throws Exception {
        DefaultMQPushConsumer consumer = options.containsKey("ak") || options.containsKey("trace")
            ? new DefaultMQPushConsumer(need("group"), hook(), new AllocateMessageQueueAveragely(), options.containsKey("trace"), null)
            : new DefaultMQPushConsumer(need("group"));
        hurry(consumer);
        consumer.setInstanceName(text("instance", "probe-" + System.nanoTime()));
        consumer.setConsumeThreadMin(number("threads", 4));
        consumer.setConsumeThreadMax(number("threads", 4));
        consumer.setConsumeFromWhere(text("from", "first").equals("first") ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        setEnum(consumer, "setMessageModel", text("model", "CLUSTERING"));
        if (text("strategy", "AVG").equals("AVG_BY_CIRCLE")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
        } else if (text("strategy", "AVG").equals("CONSISTENT_HASH")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
        }
        if (options.containsKey("max")) {
            consumer.setMaxReconsumeTimes(number("max", 16));
        }
        for (String topic : need("topic").split(",")) {
            if (options.containsKey("sql")) {
                consumer.subscribe(topic, MessageSelector.bySql(text("sql", "")));
            } else {
                consumer.subscribe(topic, text("tag", "*"));
            }
        }
        return consumer;
    }

    /** Print what came and when, then take the time that work= says. */
    private void work(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            List<Object> fields = new ArrayList<>(Arrays.asList(fields(message)));
            fields.addAll(Arrays.asList("shownAt", System.currentTimeMillis()));
            print(fields.toArray());
        }
        try {
            Thread.sleep(number("work", 0));
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean consume() throws Exception {
        int expect = number("expect", 1);
        AtomicInteger fail = new AtomicInteger(number("fail", 0));
        Semaphore seen = new Semaphore(0);
        DefaultMQPushConsumer consumer = pushConsumer();
        if (text("orderly", "false").equals("true")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                if (fail.getAndDecrement() > 0) {
                    print("refused", messages.get(0).getMsgId());
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                work(messages);
                seen.release(messages.size());
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (fail.getAndDecrement() > 0) {
                    print("refused", messages.get(0).getMsgId(), "reconsumeTimes", messages.get(0).getReconsumeTimes());
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                work(messages);
                seen.release(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        print("started", true);
        long until = System.currentTimeMillis() + 1000L * number("seconds", 120);
        while (seen.availablePermits() < expect && !stopped && System.currentTimeMillis() < until) {
            Thread.sleep(5);
        }
        boolean all = seen.availablePermits() >= expect;
        Thread.sleep(number("settle", 0));
        if (options.containsKey("settle")) {
            set(consumer, "setAwaitTerminationMillisWhenShutdown", long.class, 30_000L);  // 4.5 and newer: whose listeners have ended when it leaves
        }
        leave(consumer, consumer::shutdown);
        print("done", all, "received", seen.availablePermits());
        return all;
    }

    private boolean pull() throws Exception {
        DefaultMQPullConsumer consumer = pullConsumer();
        int left = number("max", 1000);
        int received = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(need("topic"))) {
            long offset = consumer.minOffset(queue);
            while (left > 0) {
                PullResult result = consumer.pull(queue, text("tag", "*"), offset, Math.min(32, left));
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        print(message);
                        received++;
                        left--;
                    }
                }
                if (result.getNextBeginOffset() == offset || result.getPullStatus() == PullStatus.NO_NEW_MSG || result.getPullStatus() == PullStatus.OFFSET_ILLEGAL) {
                    break;
                }
                offset = result.getNextBeginOffset();
            }
            consumer.updateConsumeOffset(queue, offset);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persistAll(java.util.Collections.singleton(queue));
        }
        leave(consumer, consumer::shutdown);
        print("done", true, "received", received);
        return true;
    }

    private DefaultMQPullConsumer pullConsumer() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(need("group"), hook());
        hurry(consumer);
        consumer.setInstanceName("probe-" + System.nanoTime());
        consumer.start();
        return consumer;
    }

    private boolean offsets() throws Exception {
        DefaultMQPullConsumer consumer = pullConsumer();
        for (MessageQueue queue : new java.util.TreeSet<>(consumer.fetchSubscribeMessageQueues(need("topic")))) {
            print("broker", queue.getBrokerName(), "queueId", queue.getQueueId(), "min", consumer.minOffset(queue), "max", consumer.maxOffset(queue),
                "committed", consumer.fetchConsumeOffset(queue, true),
                "searched", options.containsKey("time") ? consumer.searchOffset(queue, Long.parseLong(text("time", "0"))) : null);
        }
        leave(consumer, consumer::shutdown);
        print("done", true);
        return true;
    }

    private boolean query() throws Exception {
        DefaultMQProducer producer = producer();
        long end = options.containsKey("end") ? Long.parseLong(text("end", "0")) : System.currentTimeMillis() + 60_000;
        QueryResult result = producer.queryMessage(need("topic"), need("key"), number("max", 32), Long.parseLong(text("begin", "0")), end);
        result.getMessageList().forEach(this::print);
        leave(producer, producer::shutdown);
        print("done", true, "received", result.getMessageList().size());
        return true;
    }

    private boolean view() throws Exception {
        DefaultMQProducer producer = producer();
        MessageExt message = producer.viewMessage(need("topic"), need("id"));
        print(message);
        leave(producer, producer::shutdown);
        print("done", true);
        return true;
    }

    // --- figures ---

    private boolean rate() throws Exception {
        options.putIfAbsent("size", "1024");
        int count = number("count", 100000);
        int threads = number("threads", 1);
        String mode = text("mode", "sync");
        DefaultMQProducer producer = producer();
        for (int i = 0; i < Math.min(2000, count); i++) {
            producer.send(message(i));
        }
        Semaphore window = new Semaphore(number("window", 32));
        CountDownLatch left = new CountDownLatch(count);
        AtomicInteger failures = new AtomicInteger();
        AtomicInteger next = new AtomicInteger();
        long begin = System.nanoTime();
        for (int t = 0; t < threads; t++) {
            new Thread(() -> {
                int i;
                while ((i = next.getAndIncrement()) < count) {
                    try {
                        if (mode.equals("async")) {
                            window.acquire();
                            producer.send(message(i), new SendCallback() {
                                @Override public void onSuccess(SendResult result) {
                                    window.release();
                                    left.countDown();
                                }

                                @Override public void onException(Throwable failure) {
                                    failures.incrementAndGet();
                                    window.release();
                                    left.countDown();
                                }
                            });
                        } else {
                            if (mode.equals("oneway")) {
                                producer.sendOneway(message(i));
                            } else {
                                producer.send(message(i));
                            }
                            left.countDown();
                        }
                    } catch (Exception failure) {
                        failures.incrementAndGet();
                        left.countDown();
                    }
                }
            }).start();
        }
        left.await();
        double seconds = (System.nanoTime() - begin) / 1e9;
        producer.shutdown();
        print("done", true, "mode", mode, "threads", threads, "count", count, "seconds", seconds, "rate", Math.round(count / seconds), "failures", failures.get());
        return failures.get() == 0;
    }

    private boolean latency() throws Exception {
        options.putIfAbsent("size", "1024");
        int count = number("count", 2000);
        int warm = Math.max(200, count / 4);
        options.putIfAbsent("group", "probe-latency");
        long[] sentAt = new long[count + warm];
        long[] took = new long[count + warm];
        Map<String, Boolean> got = new ConcurrentHashMap<>();
        AtomicLong received = new AtomicLong();
        DefaultMQPushConsumer consumer = pushConsumer();
        consumer.setPullInterval(0);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                String index = message.getUserProperty("index");
                if (index != null && got.put(index, true) == null) {
                    took[Integer.parseInt(index)] = now - sentAt[Integer.parseInt(index)];
                    received.incrementAndGet();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = producer();
        producer.send(message(0));
        consumer.start();
        Thread.sleep(3000);
        for (int i = 0; i < count + warm; i++) {
            Message message = message(i);
            message.putUserProperty("index", String.valueOf(i));
            sentAt[i] = System.nanoTime();
            producer.send(message);
            Thread.sleep(number("pause", 1));
        }
        long until = System.currentTimeMillis() + 10000;
        while (received.get() < count + warm && System.currentTimeMillis() < until) {
            Thread.sleep(20);
        }
        long[] sorted = Arrays.copyOfRange(took, warm, warm + count);
        Arrays.sort(sorted);
        print("done", received.get() == count + warm, "count", count, "p50_us", sorted[count / 2] / 1000, "p99_us", sorted[count * 99 / 100] / 1000,
            "max_us", sorted[count - 1] / 1000);
        producer.shutdown();
        consumer.shutdown();
        return received.get() == count + warm;
    }
}
