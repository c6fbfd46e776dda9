import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/** Counts words with exactly_once_v2 until it is killed; further arguments are key=value. */
public class WordCount {
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("application.id", "word-count");
        config.put("bootstrap.servers", arguments[0]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("state.dir", arguments[1]);
        config.put("replication.factor", "1");
        config.put("commit.interval.ms", "100");
        config.put("statestore.cache.max.bytes", "0");
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("auto.offset.reset", "earliest");
        if (arguments.length == 2) config.put("session.timeout.ms", "6000");
        for (int at = 2; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words")
            .groupBy((key, word) -> word)
            .count(Materialized.as(org.apache.kafka.streams.state.Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
    }
}
