import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group that keeps a diary, as support/mixed_group_member.py does.
 *
 * java-classic   the classic protocol, with the cooperative assignor
 * java-consumer  the consumer protocol (KIP-848)
 * java-range     the same, asking for the assignor `range`
 * java-pattern   the same, subscribed by a pattern that the broker matches
 * java-static    the same, as instance `one`
 */
public final class GroupMember {
    private static Path diary;

    public static void main(String[] words) throws Exception {
        String client = words[0];
        Map<String, String> given = new HashMap<>();
        for (int at = 1; at + 1 < words.length; at += 2) {
            given.put(words[at].substring(2), words[at + 1]);
        }
        diary = Path.of(given.get("diary"));
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(client, given));
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException error) {
                return;
            }
            Runtime.getRuntime().halt(0);
        }));
        write("started", "\"client\": \"" + client + "\"");
        Listener listener = new Listener();
        if (client.equals("java-pattern")) {
            String topic = given.get("topic");
            String pattern = topic.substring(0, topic.length() - 1) + "[^ ]";
            consumer.subscribe(new SubscriptionPattern(pattern), listener);
        } else {
            consumer.subscribe(List.of(given.get("topic")), listener);
        }
        try {
            read(consumer);
        } finally {
            while (true) {
                try {
                    consumer.close();
                    break;
                } catch (WakeupException late) {
                    continue;
                }
            }
            write("stopped", null);
            closed.countDown();
        }
    }

    private static Properties settings(String client, Map<String, String> given) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("group.id", given.get("group"));
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "50");
        if (client.equals("java-classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "300");
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        } else {
            settings.put("group.protocol", "consumer");
        }
        if (client.equals("java-range")) {
            settings.put("group.remote.assignor", "range");
        }
        if (client.equals("java-static")) {
            settings.put("group.instance.id", "one");
        }
        return settings;
    }

    private static void read(KafkaConsumer<String, String> consumer) throws IOException {
        boolean inSync = true; // commits: every other one is asynchronous
        while (true) {
            try {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> record : records) {
                    write("record", "\"partition\": " + record.partition() + ", \"offset\": "
                        + record.offset() + ", \"value\": \"" + record.value() + "\"");
                }
                if (!records.isEmpty()) {
                    if (inSync) {
                        consumer.commitSync();
                    } else {
                        consumer.commitAsync();
                    }
                    inSync = !inSync;
                }
            } catch (WakeupException asked) {
                return;
            } catch (KafkaException error) {
                write("not committed", "\"why\": \"" + error.getClass().getSimpleName() + "\"");
            }
        }
    }

    private static synchronized void write(String event, String fields) {
        String line = String.format(java.util.Locale.ROOT, "{\"at\": %.9f, \"event\": \"%s\"%s}\n",
            System.nanoTime() / 1e9, event, fields == null ? "" : ", " + fields);
        try {
            Files.write(diary, line.getBytes(StandardCharsets.UTF_8),
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private static final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            write("got", numbers(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            write("gave up", numbers(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            write("gave up", numbers(partitions));
        }

        private static String numbers(Collection<TopicPartition> partitions) {
            return partitions.stream().map(one -> String.valueOf(one.partition()))
                .collect(Collectors.joining(", ", "\"partitions\": [", "]"));
        }
    }
}
