import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a share group that keeps a diary: which records it got, and what it said of them.
 *
 * implicit  accepts what it got with the next poll
 * explicit  says of each record what its value asks for: `release` until the third delivery,
 *           `reject`, `renew` once, everything else is accepted
 * limited   the same, never more than seven records at once (KIP-1206)
 * stuck     gets records and does nothing with them
 */
public final class ShareTaker {
    private static Path diary;

    public static void main(String[] words) throws Exception {
        String mode = words[0];
        Map<String, String> given = new HashMap<>();
        for (int at = 1; at + 1 < words.length; at += 2) {
            given.put(words[at].substring(2), words[at + 1]);
        }
        diary = Path.of(given.get("diary"));
        KafkaShareConsumer<String, String> taker = new KafkaShareConsumer<>(settings(mode, given));
        taker.setAcknowledgementCommitCallback(ShareTaker::onAcknowledged);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            taker.wakeup();
            try {
                closed.await();
            } catch (InterruptedException error) {
                return;
            }
            Runtime.getRuntime().halt(0);
        }));
        write("started", "\"mode\": \"" + mode + "\"");
        taker.subscribe(List.of(given.get("topic")));
        try {
            take(taker, mode);
        } finally {
            while (true) {
                try {
                    taker.close();
                    break;
                } catch (WakeupException late) {
                    continue;
                }
            }
            write("stopped", null);
            closed.countDown();
        }
    }

    private static Properties settings(String mode, Map<String, String> given) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("group.id", given.get("group"));
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("max.poll.records", mode.equals("limited") ? "7" : "50");
        settings.put("share.acknowledgement.mode", mode.equals("implicit") ? "implicit" : "explicit");
        if (mode.equals("limited")) {
            settings.put("share.acquire.mode", "record_limit");
        }
        return settings;
    }

    private static void take(KafkaShareConsumer<String, String> taker, String mode)
            throws Exception {
        Set<String> renewed = new HashSet<>();
        while (true) {
            try {
                ConsumerRecords<String, String> records = taker.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    write("poll", "\"count\": " + records.count());
                }
                for (ConsumerRecord<String, String> record : records) {
                    AcknowledgeType said = answer(record, renewed);
                    write("record", "\"partition\": " + record.partition() + ", \"offset\": "
                        + record.offset() + ", \"value\": \"" + record.value() + "\", \"count\": "
                        + record.deliveryCount().orElse((short) 0) + ", \"said\": \"" + said.name() + "\"");
                    if (!mode.equals("implicit") && !mode.equals("stuck")) {
                        taker.acknowledge(record, said);
                    }
                }
                if (mode.equals("stuck") && !records.isEmpty()) {
                    Thread.sleep(3_600_000);
                }
            } catch (WakeupException asked) {
                return;
            } catch (KafkaException error) {
                write("failed", "\"why\": \"" + error + "\"");
            }
        }
    }

    private static AcknowledgeType answer(ConsumerRecord<String, String> record,
            Set<String> renewed) {
        if (record.value().startsWith("release") && record.deliveryCount().orElse((short) 0) < 3) {
            return AcknowledgeType.RELEASE;
        }
        if (record.value().startsWith("reject")) {
            return AcknowledgeType.REJECT;
        }
        if (record.value().startsWith("renew") && renewed.add(record.value())) {
            return AcknowledgeType.RENEW;
        }
        return AcknowledgeType.ACCEPT;
    }

    private static void onAcknowledged(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        String why = error == null ? "" : error.getClass().getSimpleName();
        offsets.forEach((partition, some) -> write("acknowledged", "\"partition\": "
            + partition.partition() + ", \"offsets\": " + some + ", \"error\": \"" + why + "\""));
    }

    private static synchronized void write(String event, String fields) {
        String line = "{\"event\": \"" + event + "\"" + (fields == null ? "" : ", " + fields) + "}\n";
        try {
            Files.write(diary, line.getBytes(StandardCharsets.UTF_8),
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }
}
