-- A step's number is known before it is inserted, and the row of its task follows: one statement appends a step. Programs of
-- earlier versions count first, and find nothing left to do here.
CREATE TRIGGER steps_counted AFTER INSERT ON steps
BEGIN
    UPDATE tasks SET last_seq = NEW.seq WHERE id = NEW.task AND last_seq < NEW.seq;
END;
