package tablestore.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.TableChange;

/** Describes the changes of an ALTER TABLE for Python. */
final class TableChanges {
  private TableChanges() {}

  /** Writes a change into a node: its kind, and what belongs to it. */
  static void describe(TableChange change, ObjectNode node) {
    if (change instanceof TableChange.SetProperty set) {
      node.put("kind", "set").put("name", set.property()).put("value", set.value());
    } else if (change instanceof TableChange.RemoveProperty remove) {
      node.put("kind", "unset").put("name", remove.property());
    } else if (change instanceof TableChange.ColumnChange column) {
      node.put("name", topLevel(column.fieldNames()));
      describeColumn(column, node);
    } else {
      throw refused(change);
    }
  }

  private static void describeColumn(TableChange.ColumnChange change, ObjectNode node) {
    if (change instanceof TableChange.AddColumn add) {
      if (add.defaultValue() != null) {
        throw Refusals.plain("unsupported", "a column has no DEFAULT here: rows that lack column " + node.get("name") + " have null");
      }
      node.put("kind", "add").put("type", add.dataType().json());
      node.put("nullable", add.isNullable()).put("comment", add.comment());
      putPosition(add.position(), node);
    } else if (change instanceof TableChange.DeleteColumn drop) {
      node.put("kind", "drop").put("if_exists", drop.ifExists());
    } else if (change instanceof TableChange.RenameColumn rename) {
      node.put("kind", "rename").put("new_name", rename.newName());
    } else if (change instanceof TableChange.UpdateColumnType type) {
      node.put("kind", "type").put("type", type.newDataType().json());
    } else if (change instanceof TableChange.UpdateColumnNullability nullability) {
      node.put("kind", "nullable").put("nullable", nullability.nullable());
    } else if (change instanceof TableChange.UpdateColumnComment comment) {
      node.put("kind", "comment").put("comment", comment.newComment());
    } else if (change instanceof TableChange.UpdateColumnPosition move) {
      node.put("kind", "move");
      putPosition(move.position(), node);
    } else {
      throw refused(change);
    }
  }

  private static void putPosition(TableChange.ColumnPosition position, ObjectNode node) {
    if (position instanceof TableChange.After after) {
      node.put("after", after.column());
    } else if (position != null) {
      node.put("first", true);
    }
  }

  private static String topLevel(String[] names) {
    if (names.length == 1) {
      return names[0];
    }
    throw Refusals.plain(
        "unsupported", String.join(".", names) + " is a field inside of a column: only whole columns can be changed");
  }

  private static RuntimeException refused(TableChange change) {
    return Refusals.plain("unsupported", "Tablestore does not keep this: " + change);
  }
}
