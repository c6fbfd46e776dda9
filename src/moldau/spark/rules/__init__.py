"""What the Spark source decides: pure rules, values in and values out."""
