import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What came with release 4.6: the lite pull consumer, and request and reply. Options as in Probe. */
public final class Probe46 {
    public static boolean run(Probe probe, String command) throws Exception {
        switch (command) {
            case "litepull": return litePull(probe);
            case "request": return request(probe);
            case "reply": return reply(probe);
            default:
                probe.print("error", "no such command", "text", command);
                return false;
        }
    }

    private static boolean litePull(Probe probe) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(probe.need("group"), probe.hook());
        probe.hurry(consumer);
        consumer.setInstanceName("probe-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setEnableMsgTrace(!probe.text("trace", "").isEmpty());
        consumer.subscribe(probe.need("topic"), probe.text("tag", "*"));
        consumer.start();
        probe.print("started", true);
        int expect = probe.number("expect", 1);
        int received = 0;
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(probe.number("seconds", 120));
        while (received < expect && !probe.stopped() && System.nanoTime() < until) {
            List<MessageExt> messages = consumer.poll(100);
            messages.forEach(probe::print);
            received += messages.size();
        }
        consumer.commitSync();
        Probe.leave(consumer, consumer::shutdown);
        probe.print("done", received >= expect, "received", received);
        return received >= expect;
    }

    private static boolean request(Probe probe) throws Exception {
        DefaultMQProducer producer = probe.producer();
        int count = probe.number("count", 1);
        for (int i = 0; i < count; i++) {
            Message reply = producer.request(probe.message(i), 1000L * probe.number("seconds", 60));
            probe.print("reply", new String(reply.getBody(), StandardCharsets.UTF_8), "correlation", reply.getProperty("CORRELATION_ID"));
        }
        Probe.leave(producer, producer::shutdown);
        probe.print("done", true);
        return true;
    }

    private static boolean reply(Probe probe) throws Exception {
        DefaultMQProducer producer = probe.producer();
        AtomicInteger answered = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(probe.need("group"));
        probe.hurry(consumer);
        consumer.setInstanceName("probe-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullInterval(0);
        consumer.subscribe(probe.need("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] answer = ("reply to " + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, answer), 30000);
                    probe.print("answered", message.getMsgId());
                    answered.incrementAndGet();
                } catch (Exception failure) {
                    probe.print("failed", failure.toString());
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        probe.print("started", true);
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(probe.number("seconds", 120));
        while (answered.get() < probe.number("expect", 1) && !probe.stopped() && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        Probe.leave(consumer, consumer::shutdown);
        Probe.leave(producer, producer::shutdown);
        probe.print("done", answered.get() >= probe.number("expect", 1));
        return answered.get() >= probe.number("expect", 1);
    }
}
