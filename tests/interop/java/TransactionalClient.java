import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/** Transactions with Apache Kafka's own client; prints what it sees. */
public class TransactionalClient {
    static String bootstrap;

    static KafkaProducer<String, String> producer(String id, String... more) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        for (int i = 0; i < more.length; i += 2) config.put(more[i], more[i + 1]);
        return new KafkaProducer<>(config);
    }

    static KafkaConsumer<String, String> consumer(String group, String isolation) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("isolation.level", isolation);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        return new KafkaConsumer<>(config);
    }

    /** All values of a topic, until its end for this isolation. */
    static List<String> read(String topic, String isolation) {
        try (KafkaConsumer<String, String> consumer = consumer("unused", isolation)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo one : consumer.partitionsFor(topic)) partitions.add(new TopicPartition(topic, one.partition()));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<String> values = new ArrayList<>();
            while (true) {
                boolean done = true;
                for (TopicPartition one : partitions) done &= consumer.position(one) >= ends.get(one);
                if (done) return values;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) values.add(record.value());
            }
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
        System.out.println("ok " + what);
    }

    static void commitsAndAborts(String in) {
        try (KafkaProducer<String, String> producer = producer("java-" + in)) {
            producer.initTransactions();
            for (int round = 0; round < 20; round++) {
                producer.beginTransaction();
                for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(in, i % 2, "k", round + "-" + i));
                producer.flush();
                if (round % 2 == 0) producer.commitTransaction(); else producer.abortTransaction();
            }
        }
        check(read(in, "read_committed").size() == 50, "committed are read, and nothing else");
        check(read(in, "read_uncommitted").size() == 100, "aborted are there");
    }

    static void transforms(String in, String out) {
        Set<String> wanted = new HashSet<>();
        for (String value : read(in, "read_committed")) wanted.add(value + "!");
        try (KafkaProducer<String, String> producer = producer("java-transform-" + out);
             KafkaConsumer<String, String> consumer = consumer("group-" + out, "read_committed")) {
            producer.initTransactions();
            consumer.subscribe(List.of(in));
            int seen = 0;
            boolean hasAborted = false;
            while (seen < wanted.size()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) producer.send(new ProducerRecord<>(out, record.key(), record.value() + "!"));
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                if (!hasAborted) {
                    producer.abortTransaction();
                    hasAborted = true;
                    for (TopicPartition one : consumer.assignment()) consumer.seekToBeginning(List.of(one));
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    check(committed.values().stream().allMatch(Objects::isNull), "an abort commits no offsets");
                    continue;
                }
                producer.commitTransaction();
                seen += records.count();
            }
            List<String> found = read(out, "read_committed");
            check(found.size() == wanted.size() && wanted.equals(new HashSet<>(found)), "each is transformed once");
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            check(committed.values().stream().allMatch(Objects::nonNull), "offsets are committed");
        }
    }

    static void fencing(String topic) {
        String id = "java-fenced-" + topic;
        try (KafkaProducer<String, String> first = producer(id); KafkaProducer<String, String> second = producer(id)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, "k", "zombie"));
            first.flush();
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, "k", "second"));
            String caught = "nothing";
            try {
                first.send(new ProducerRecord<>(topic, 1, "k", "zombie too"));
                first.commitTransaction();
            } catch (KafkaException error) {
                caught = error.getClass().getSimpleName() + " " + (error.getCause() == null ? "" : error.getCause().getClass().getSimpleName());
            }
            second.commitTransaction();
            check(caught.contains("ProducerFenced") || caught.contains("InvalidProducerEpoch"), "the first producer is fenced: " + caught);
            check(read(topic, "read_committed").equals(List.of("second")), "only the second's is read");
        }
    }

    static void timesOut(String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-late-" + topic, "transaction.timeout.ms", "1000")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "k", "late"));
            producer.flush();
            try (KafkaConsumer<String, String> reader = consumer("unused", "read_committed")) {
                TopicPartition one = new TopicPartition(topic, 0);
                while (reader.endOffsets(List.of(one)).get(one) < 2) Thread.sleep(100);
            }
            String caught = "nothing";
            try { producer.commitTransaction(); } catch (KafkaException error) { caught = error.getClass().getSimpleName(); }
            check(!caught.equals("nothing"), "what timed out is not committed: " + caught);
            check(read(topic, "read_committed").isEmpty(), "nothing of it is read");
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        String prefix = arguments[1];
        commitsAndAborts(prefix + "-in");
        transforms(prefix + "-in", prefix + "-out");
        fencing(prefix + "-fenced");
        timesOut(prefix + "-late");
    }
}
