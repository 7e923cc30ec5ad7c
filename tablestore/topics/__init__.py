"""Reading Kafka tables: messages as rows, and the complete changes of topics that tell upserts."""
