import java.net.Inet4Address;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Everything that a broker serves of the queues that it is asked about: bounds, messages, and each message again by its tag, its keys, its
 * unique id, its place in the log and its time. Options: names=, queues=TOPIC:COUNT,..., broker=, via= (a topic with a route; hidden topics have none).
 */
final class Survey {
    private final Probe probe;
    private final DefaultMQPullConsumer consumer;
    private final Set<String> asked = new LinkedHashSet<>();

    private Survey(Probe probe, DefaultMQPullConsumer consumer) {
        this.probe = probe;
        this.consumer = consumer;
    }

    static boolean run(Probe probe, DefaultMQPullConsumer consumer) throws Exception {
        Survey survey = new Survey(probe, consumer);
        consumer.fetchSubscribeMessageQueues(probe.need("via"));
        for (String word : probe.need("queues").split(",")) {
            int colon = word.lastIndexOf(':');
            for (int id = 0; id < Integer.parseInt(word.substring(colon + 1)); id++) {
                survey.queue(new MessageQueue(word.substring(0, colon), probe.text("broker", "broker-a"), id));
            }
        }
        Probe.leave(consumer, consumer::shutdown);
        probe.print("done", true);
        return true;
    }

    private void queue(MessageQueue queue) throws Exception {
        long min = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        TreeSet<Long> times = new TreeSet<>();
        TreeSet<String> tags = new TreeSet<>();
        String problem = null;
        for (long offset = min; offset < max;) {
            PullResult result;
            try {
                result = consumer.pull(queue, "*", offset, 32);
            } catch (Exception failure) {
                problem = failure.getClass().getSimpleName() + ": " + failure.getMessage();
                break;
            }
            if (result.getPullStatus() == PullStatus.NO_MATCHED_MSG && result.getNextBeginOffset() > offset) {  // a hole
                offset = result.getNextBeginOffset();
                continue;
            }
            if (result.getPullStatus() != PullStatus.FOUND) {
                problem = result.toString();
                break;
            }
            for (MessageExt message : result.getMsgFoundList()) {
                probe.print(message);
                times.add(message.getStoreTimestamp());
                if (message.getTags() != null && !queue.getTopic().equals("SCHEDULE_TOPIC_XXXX")) {  // whose entries have times in the place of tags
                    tags.add(message.getTags());
                }
                again(message);
            }
            offset = result.getNextBeginOffset();
        }
        for (String tag : tags) {
            byTag(queue, tag, min, max);
        }
        Map<String, Object> searched = new LinkedHashMap<>();
        for (long time : new TreeSet<>(times)) {
            times.add(time - 1);
            times.add(time + 1);
        }
        for (long time : times) {
            searched.put(String.valueOf(time), consumer.searchOffset(queue, time));
        }
        probe.print("surveyed", queue.getTopic(), "queueId", queue.getQueueId(), "min", min, "max", max, "earliest", consumer.earliestMsgStoreTime(queue),
            "searched", searched, "problem", problem);
    }

    /** The message by its keys, its unique id and its place. */
    private void again(MessageExt message) {
        String topic = message.getTopic();
        if (message.getKeys() != null) {
            for (String key : message.getKeys().split(" ")) {
                if (asked.add(topic + "#" + key)) {
                    byKey(topic, key);
                }
            }
        }
        String unique = message.getProperty("UNIQ_KEY");
        if (unique != null && asked.add(topic + "#" + unique)) {
            find(topic, "unique", unique, () -> consumer.getDefaultMQPullConsumerImpl().queryMessageByUniqKey(topic, unique));
        }
        if (((InetSocketAddress) message.getStoreHost()).getAddress() instanceof Inet4Address) {  // the place is asked of the host in the id
            String id = place(message);
            find(topic, "place", id, () -> consumer.viewMessage(topic, id));
        }
    }

    private void byTag(MessageQueue queue, String tag, long min, long max) throws Exception {
        StringBuilder found = new StringBuilder();
        for (long offset = min; offset < max;) {
            PullResult result = consumer.pull(queue, tag, offset, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                result.getMsgFoundList().forEach(message -> found.append(found.length() > 0 ? " " : "").append(message.getQueueOffset()));
            }
            offset = Math.max(offset + 1, result.getNextBeginOffset());
        }
        probe.print("by", "tag", "of", queue.getTopic() + ":" + queue.getQueueId(), "value", tag, "found", found.toString(), "problem", null);
    }

    private void byKey(String topic, String key) {
        TreeMap<Long, String> found = new TreeMap<>();
        String problem = null;
        try {
            for (MessageExt message : consumer.queryMessage(topic, key, 64, 0, Long.MAX_VALUE).getMessageList()) {
                found.put(message.getCommitLogOffset(), place(message));
            }
        } catch (Exception failure) {
            problem = failure.getClass().getSimpleName();
        }
        probe.print("by", "key", "of", topic, "value", key, "found", String.join(" ", found.values()), "problem", problem);
    }

    private void find(String topic, String by, String value, Search search) {
        String found = "";
        String problem = null;
        try {
            MessageExt message = search.run();
            found = place(message) + " " + message.getTopic() + " " + message.getQueueId() + ":" + message.getQueueOffset();
        } catch (Exception failure) {
            problem = failure.getClass().getSimpleName();
        }
        probe.print("by", by, "of", topic, "value", value, "found", found, "problem", problem);
    }

    private static String place(MessageExt message) {
        return MessageDecoder.createMessageId(message.getStoreHost(), message.getCommitLogOffset());
    }

    private interface Search {
        MessageExt run() throws Exception;
    }
}
